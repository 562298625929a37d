#!/usr/bin/env bash
# A real Slurm on this machine, without installing: Debian's packages unpacked, four nodes in two
# partitions, on the loopback only.
#
#   slurm_lab.sh get DIR     download and unpack
#   slurm_lab.sh up DIR      configure and start; prints the variables that its commands need
#   slurm_lab.sh down DIR    end what `up DIR` started
#
# Needs Debian's package lists (`apt-get update`).  No munge, no systemd, and no accounting, so no
# sacct.  Nodes claim as many cores as the machine has, since a job checks its affinity.
set -euo pipefail
verb=${1:?get, up or down}
mkdir -p "${2:?a folder}"
dir=$(cd "$2" && pwd)
root=$dir/root run=$dir/run
libs=$root/usr/lib/$(uname -m)-linux-gnu
port=${SLURM_LAB_PORT:-26817}
cores=$(nproc)

if [ "$verb" = down ]; then
  for file in "$run"/*.pid; do
    [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
    rm -f "$file"
  done
  exit 0
fi

if [ ! -x "$root/usr/bin/sinfo" ]; then
  mkdir -p "$dir/debs" "$root"
  (cd "$dir/debs" && apt-get download -q -o APT::Sandbox::User=root slurmctld slurmd slurm-client \
    slurm-wlm-basic-plugins libhwloc15 libmunge2 libpciaccess0 libxnvctrl0 openssh-server libwrap0 >&2)
  for deb in "$dir"/debs/*.deb; do dpkg -x "$deb" "$root"; done
fi
[ "$verb" = up ] || exit 0

mkdir -p "$run/state" "$run/log"
node() { # name, port, CPUs, MB, further words
  echo "NodeName=$1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + $2)) CPUs=$3 RealMemory=$4 ${5:-}"
}
cat >"$run/slurm.conf" <<CONF
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/spool-%n
SlurmctldPidFile=$run/slurmctld.lock
SlurmdPidFile=$run/slurmd-%n.lock
SlurmctldLogFile=$run/log/slurmctld.log
SlurmdLogFile=$run/log/%n.log
PluginDir=$libs/slurm-wlm
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=2
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmdParameters=config_overrides
$(node cpu1 4 "$cores" 1000 Feature=avx512)
$(node cpu2 5 "$cores" 1000 Feature=avx512)
$(node old1 6 1 1000)
$(node big1 7 "$cores" 4000)
PartitionName=small Nodes=cpu1,cpu2,old1 Default=YES MaxTime=10 State=UP
PartitionName=big Nodes=big1 MaxTime=10 State=UP
CONF
export SLURM_CONF=$run/slurm.conf LD_LIBRARY_PATH=$libs:$libs/slurm-wlm PATH=$root/usr/bin:$root/usr/sbin:$PATH
first() { for file in "$root/usr/sbin/$1"*; do echo "$file" && break; done; }
start() { # name, command
  setsid "${@:2}" >"$run/log/$1.out" 2>&1 </dev/null &
  echo $! >"$run/$1.pid"
}
start slurmctld "$(first slurmctld)" -D -c
for name in cpu1 cpu2 old1 big1; do
  mkdir -p "$run/spool-$name"
  start "$name" "$(first slurmd)" -d "$(first slurmstepd)" -D -N "$name"
done
for _ in $(seq 100); do
  [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = 4 ] && break
  sleep 0.2
done
if [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" != 4 ]; then
  echo "not all nodes came up; see $run/log" >&2
  "$0" down "$dir"
  exit 1
fi
printf '%s\n' "SLURM_CONF=$SLURM_CONF" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" "PATH=$PATH"
