"""The keys, and what the words and symbols on the screens mean."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench.export.view.spans import Text, fact, facts_lines, heading, label_width

from ..terminal import TOO_SMALL
from ..widgets.drawn import Drawn
from ..widgets.keybar import KeyBar, key_name
from ..widgets.pane import Pane
from ..widgets.table import Table

RACES, ANSWERS = "Run Detail", "Advisor Detail"
CONFIDENCE = f"{ANSWERS} Model Runs"
WORDS = (  # word, meaning, and the screens that show it ("" if all do)
    ("candidate", "one way to do the job: device, backend, precision and threads", ""),
    ("t2", "2 CPU threads", ""),
    ("ort", "onnxruntime, where a table is narrow", ""),
    ("sim", "simulated: the GPU is the test device fake:0, a CPU worker", ""),
    ("n/a", "could not be read; the reason is given below", ""),
    ("pick", "the best candidate that may be chosen", f"Advisor Model {RACES}"),
    ("/ ...", "another candidate is as good as the pick", "Advisor"),
    ("usual", "the device usually recommended for such a job", "Advisor"),
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
    ("* o + x", "curve symbols, in front of each candidate", "Run"),
    ("Gain", "value of the model or code as given over this one's; above 1 is better", "Model"),
    ("Error", "the largest relative error; A to B: B bounds unseen inputs", "Model Detail"),
    ("Resident", "time of a call whose inputs are on the GPU already", "Model"),
    ("limited by", "memory traffic, or the peak of the precision: what bounds a rate", "Roofline"),
    ("SAME", "within 10%; AMBIGUOUS: the two runs do not show which", "Compare"),
)


class HelpScreen(ModalScreen[None]):
    """`keys` are pairs of a key and what it does."""

    AUTO_FOCUS = "Pane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("question_mark,q,enter", "dismiss", "Close", show=False),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]], page: str) -> None:
        """`page`: the label of the screen whose words are explained."""
        super().__init__()
        self._keys = keys
        self._words = [(word, text) for word, text, at in WORDS if not at or page in at.split()]

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        with Pane(id="help"):
            yield Drawn(id="help-text")
        yield KeyBar()

    def on_mount(self) -> None:
        text = self.query_one("#help-text", Drawn)
        text.show(lambda width: help_lines(self._keys, self._words, width))


def help_keys(screen: DOMNode, app: DOMNode) -> list[tuple[str, str]]:
    """Keys and tooltips of a screen, its tables and the application, except those that the screen
    never uses.  The nearest binding of a key counts; escape has all, which act in turn."""
    tables = [Table] if screen.query(Table) else []
    kinds = [*type(screen).__mro__, *tables, *type(app).__mro__]
    owners = [kind for kind in kinds if not kind.__module__.startswith("textual.")]
    unused = getattr(screen, "UNUSED", ())
    found: dict[str, list[str]] = {}
    for binding in (b for owner in owners for b in vars(owner).get("BINDINGS", ())):
        if not isinstance(binding, Binding) or binding.action in unused:
            continue
        if binding.tooltip:
            texts = found.setdefault(key_name(binding), [])
            if not texts or binding.key == "escape":
                texts.append(binding.tooltip)
    return [(key, "; ".join(texts)) for key, texts in found.items()]


def help_lines(
    keys: Sequence[tuple[str, str]], words: Sequence[tuple[str, str]], width: int
) -> list[Text]:
    lines: list[Text] = []
    for title, entries in (("Keys", keys), ("Words", words)):
        facts = [fact(name, text, label_tone="command") for name, text in entries]
        lines += [heading(title, width), *facts_lines(facts, width, label_width(facts)), Text()]
    return lines[:-1]
