"""The dataset version: chosen, valid, not empty, and with enough validation rows for the evaluation."""

from collections.abc import Iterator

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, stop, warn


def check(draft: Draft) -> Iterator[Finding]:
    data = draft.data
    if data is None:
        yield stop("dataset_version", "No dataset is chosen.", "Choose one, or upload one under Datasets.")
    elif not data.ready:
        yield stop("dataset_version", f"{data.name} isn't ready.", "Finish its column mapping, or choose another.")
    elif data.rows == 0:
        yield stop("dataset_version", f"{data.name} has no rows.", "Choose another dataset.")


def check_evaluation(draft: Draft) -> Iterator[Finding]:
    data = draft.data if draft.data and draft.data.ready else None
    if data is not None and draft.eval_rows > data.validation_rows:
        validation, rows = data.validation_rows, "row" if data.validation_rows == 1 else "rows"
        yield stop(
            "eval_rows",
            f"{draft.eval_rows:,} evaluation rows are requested, but {data.name} keeps "
            f"{f'only {validation:,} {rows}' if validation else 'none'} out of training.",
            "Evaluate fewer, or import the dataset with a larger validation share.",
            *([Fix(f"Evaluate {validation:,}", {"eval_rows": str(validation)})] if validation else []),
            Fix("Don't evaluate", {"eval_rows": "0"}),
        )
    interval, last = draft.value("eval_steps"), draft.value("max_steps")
    if draft.eval_rows and interval and last and 0 < last < interval:
        yield warn(
            "eval_steps",
            f"The run ends at step {last}, before its first evaluation at step {int(interval)}.",
            "Evaluate more often.",
            Fix(f"Evaluate every {max(last // 4, 1)} steps", {"eval_steps": str(max(last // 4, 1))}),
        )
