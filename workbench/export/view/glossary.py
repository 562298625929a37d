"""The words and symbols of screens and pages, and what each means."""

import re
from collections.abc import Iterator

RACES, ANSWERS = "Run Detail", "Advisor Detail"
CONFIDENCE = f"{ANSWERS} Model Runs"
WORDS = (  # word, meaning, and the screens that show it ("" if all do)
    ("Candidate", "one way to do the job: device, backend, precision and threads", ""),
    ("t2", "2 CPU threads", ""),
    ("ort", "onnxruntime, where a table is narrow", ""),
    ("sim", "simulated: the GPU is the test device fake:0, a CPU worker", ""),
    ("n/a", "could not be read; the reason is given below", "Hardware"),
    ("pick", "the best candidate that may be chosen", f"Advisor Model {RACES}"),
    ("/ ...", "another candidate is as good as the pick", "Advisor"),
    ("Usual", "the device usually recommended for such a job", "Advisor"),
    ("Here", "the device that is faster on this machine", "Advisor"),
    ("either", "CPU and GPU are too close to call", f"{ANSWERS} Runs Compare"),
    ("alone", "no other candidate could be compared with the pick", "Advisor"),
    ("Time", "that of the best candidate is 1x; drawn with its 95% interval", f"Advisor {RACES}"),
    ("varies", "the times vary too much for a ratio", f"Advisor {RACES}"),
    ("1/1.2x", "1.2x better; the answer says why it is not the pick", f"Advisor {RACES}"),
    ("unknown", "the measurements do not say which device is faster", f"{ANSWERS} Runs Compare"),
    ("Lead", "how much faster the better device is; on one device, pick over next", "Advisor"),
    ("95%", "95% confidence interval of the ratio, from common rounds", f"Advisor {RACES}"),
    ("95%", "95% confidence interval of the ratio of the picks within one run", "Compare"),
    ("99%", "99% confidence interval of B/A, whose runs did not take turns", "Compare"),
    ("sure", "confidence: the lead is above 5% after all looks at the race", CONFIDENCE),
    ("likely", "the interval of the lead excludes 1", CONFIDENCE),
    ("tie", "the interval of the lead lies within 5%", CONFIDENCE),
    ("open", "none of these, or the lead is in doubt", CONFIDENCE),
    ("unrated", "an older version of workbench wrote the run", CONFIDENCE),
    ("incomplete", "cut short: the run, once opened, names the command for the rest", "Runs"),
    ("break-even", "when the faster one has made up for its longer start", ANSWERS),
    ("warm", "its times had settled before its first turn", RACES),
    ("round", "every candidate has one turn in it", RACES),
    ("eliminated", "clearly slower, so it stopped early; its samples are kept", f"Model {RACES}"),
    ("p99", "99th percentile of the times of one step; n/a: too few samples for it", RACES),
    ("n", "number of samples", RACES),
    ("nhwc", "images in the channels_last layout", f"Advisor NewRun {RACES}"),
    ("graph", "the step replayed as a CUDA graph", f"Advisor NewRun {RACES}"),
    ("plain", "as the library runs it unless asked otherwise", "NewRun"),
    ("compile", "by torch.compile", f"NewRun {RACES}"),
    ("reduce-overhead", "by torch.compile, and replayed as a CUDA graph", f"NewRun {RACES}"),
    ("max-autotune", "by torch.compile, which tries several kernels", f"NewRun {RACES}"),
    ("fused", "an optimiser that updates all weights in one kernel", f"NewRun {RACES}"),
    ("keep", "glibc keeps memory that calls free, which costs no page faults", RACES),
    ("dataloader", "batches made by torch's DataLoader", f"NewRun {RACES}"),
    ("cudnn-benchmark", "cuDNN tries its algorithms and keeps the fastest", f"NewRun {RACES}"),
    ("int8-static", "activations scaled once, from sample inputs", f"Advisor Model {RACES}"),
    ("int8-dynamic", "activations scaled in every call", f"Advisor Model {RACES}"),
    ("nospin", "threads that wait for work without spinning", f"Model {RACES}"),
    ("Check", "the error against a reference; / its limit", "Detail"),
    ("ceilings", "the rates that this machine reaches: `workbench ceilings`", "Hardware Roofline"),
    ("burst", "a ceiling by its fastest 10% of samples", "Detail"),
    ("ridge point", "work per byte from which memory no longer limits", "Hardware"),
    ("cache", "ceiling for data that fits into the last-level cache", "Roofline"),
    ("±", "half the width of the 95% interval of the median", f"Advisor Model {RACES}"),
    ("!", "a time that is less certain, or an error that is too large", f"Advisor Model {RACES}"),
    ("* o + x", "curve symbols, in front of each candidate", RACES),
    ("Gain", "value of the model or code as given over this one's; above 1 is better", "Model"),
    ("Error", "the largest relative error; A to B: B bounds unseen inputs", "Model Detail"),
    ("Resident", "time of a call whose inputs are on the GPU already", "Model"),
    ("limited by", "memory traffic, or the peak of the precision: what bounds a rate", "Roofline"),
    ("SAME", "within 10%; AMBIGUOUS: the two runs do not show which", "Compare"),
)


def words_on(*pages: str) -> list[tuple[str, str]]:
    """The words of these screens, with their meanings."""
    return [(word, text) for word, text, at in WORDS if not at or {*pages} & {*at.split()}]


def words_in(text: str) -> Iterator[tuple[str, str]]:
    """The words that a report contains, with their meanings; a number stands for any number."""
    for word, meaning in words_on("Advisor", "Detail", "Model"):
        form = re.sub(r"\d+", r"\\d+", re.escape(word))
        if re.search(rf"(?<![a-z]){form}(?![a-z])", text):
            yield word, meaning
