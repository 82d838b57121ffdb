"""A preload that imports math-verify and uses it once. The first formulas fill the tables of its grammar and the caches
of SymPy. A fork that inherits both needs milliseconds for a comparison; a cold one needs a tenth of a second."""

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

_FORMULAS = (
    ("$18$", "18"),
    (r"$\frac{1}{2}$", r"\boxed{\frac{2}{4}}"),
    (r"$2\sqrt{3} + 1$", r"\boxed{1 + \sqrt{12}}"),
    ("$x^2 + 2x + 1$", "$(x+1)^2$"),
    (r"$\{1, 2\}$", r"$\{2, 1\}$"),
    ("$(1, 2)$", r"$\left(1, 2\right)$"),
    (r"$[0, 1) \cup (2, \infty)$", r"$[0, 1) \cup (2, \infty)$"),
    (r"$\frac{\pi}{3} - \sin(x)$", r"$\pi / 3 - \sin x$"),
    (r"$x = 3$", "$3$"),
    (r"$x \le 5$", r"$x \leq 5$"),
    (r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$", r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$"),
    (r"$50\%$", "0.5"),
    ("$1,234.5$", "1234.5"),
    (r"$\log_2 8 + 10^3 \cdot e$", r"$3 + 1000e$"),
)
_KINDS = [LatexExtractionConfig(), ExprExtractionConfig()]

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at each call that its own alarms are off
for _gold, _answer in _FORMULAS:
    verify(
        parse(_gold, extraction_config=_KINDS, parsing_timeout=None),
        parse(_answer, extraction_config=_KINDS, parsing_timeout=None),
        timeout_seconds=None,
    )
