"""Docstrings of functions begin with a verb in the imperative, and names say what a value is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from controlplane.setup.serving.processes import BASE_DIR as ROOT

PACKAGES = ("controlplane", "runs", "workers")
VERBS = frozenset(["    Abort Accept Acquire Add Adjust Adopt Advance Aggregate Align Allocate Allow Announce Answer Append Apply
    Approximate Archive Arrange Ask Assemble Assess Assign Attach Attribute Average Balance Begin Benchmark Bind Block
    Bound Break Build Cache Calculate Call Cancel Capitalise Catch Change Charge Check Choose Claim Classify Clean
    Clear Clip Clone Close Collapse Collect Combine Compact Compare Compile Compose Compress Compute Configure Confirm
    Connect Consume Continue Convert Copy Correct Count Create Cut Deactivate Decide Declare Decode Decorate Decrypt
    Delay Delete Deliver Derive Describe Detach Detect Diagnose Dial Disable Discard Disconnect Dismiss Dispatch
    Display Distinguish Distribute Divide Do Download Downsample Drain Draw Drop Duplicate Embed Enable Encode Encrypt
    End Enforce Ensure Enter Escape Estimate Evaluate Evict Examine Exchange Exclude Execute Exit Expand Expire
    Explain Export Expose Extend Extract Fail Fetch Fill Filter Find Finish Fit Fold Follow Forecast Forget Fork
    Format Forward Free Freeze Gather Generate Get Give Grant Group Grow Guard Guess Handle Hard-link Hash Hide Hold
    Identify Ignore Import Include Increment Index Infer Ingest Initialise Insert Inspect Install Interpret Interrupt
    Invalidate Invite Issue Iterate Join Judge Keep Kill Label Launch Leave Lend Let Limit Link List Listen Load
    Locate Lock Log Look Lower Make Map Mark Mask Match Measure Merge Migrate Mix Mount Move Multiply Name Narrow
    Normalise Note Notify Number Obtain Offer Omit Open Order Override Pack Pair Parse Pass Patch Pause Perform
    Persist Pick Place Plan Play Poll Pop Prefer Prepare Prepend Preselect Preview Print Probe Process Produce Propose
    Protect Provide Prune Publish Pull Push Put Quarantine Query Queue Quote Raise Rank Read Reap Rebuild Receive
    Recognise Recompute Reconcile Record Recount Recover Recreate Redirect Redraw Reduce Refresh Refuse Register
    Reject Release Reload Remember Remove Rename Render Renew Reopen Repair Repeat Replace Replay Reply Report
    Represent Request Require Resend Reserve Reset Resize Resolve Restart Restore Restrict Resume Retrieve Retry
    Return Reuse Revoke Rewrite Roll Round Route Run Sample Save Scale Scan Schedule Score Search Seed Select Send
    Serialise Serve Set Settle Share Shorten Show Shrink Shuffle Shut Sign Signal Simulate Skip Sleep Smooth Snapshot
    Solve Sort Specify Split Spread Start State Stop Store Stream Strip Submit Subscribe Substitute Subtract Suggest
    Sum Summarise Supply Suspend Swap Switch Sync Synchronise Take Terminate Test Tokenize Total Touch Track Train
    Transfer Transform Translate Trim Truncate Try Turn Undo Unfold Unload Unlock Unpack Unregister Unwrap Update
    Upload Use Validate Verify View Visit Wait Wake Walk Warm Warn Watch Weigh Withdraw Wrap Write Yield Zip"])
"""Add a verb when a docstring needs one. A property is described by a noun, so it is left out."""
VAGUE = {    "one": 0,}
"""Names that say nothing of a value, with how often each may still stand as a variable, parameter or function."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    others = []
    for path, tree in trees():
        for function in functions(tree):
            text = ast.get_docstring(function)
            is_property = any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
            if text and not is_property and text.split()[0].rstrip(".,:;") not in VERBS:
                others.append(f"{path}:{function.lineno} {text.splitlines()[0]}")
    assert others == []


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Names of variables, parameters and functions, once each in a module."""
    names = {function.name for function in functions(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return iter(name.strip("_") for name in names)


def test_vague_names_become_fewer() -> None:
    counts = Counter(name for _, tree in trees() for name in bound_names(tree) if name in VAGUE)
    assert {name: count for name, count in counts.items() if count > VAGUE[name]} == {}
