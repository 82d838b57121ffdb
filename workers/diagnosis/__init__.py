"""Why a run failed, from its logs, exits and figures: a catalogue of causes, and one interpreter for it.

Standard library only, and nothing else of the project: `python -m workers.diagnosis` works on a folder or a log that
somebody has sent. An entry of catalogue.toml names the patterns of a cause, where they are written, the cause and its
fix in words, and what to change in the New run form; the interpreter ranks the entries that match.
"""

from workers.diagnosis.catalogue import Change as Change
from workers.diagnosis.catalogue import Confidence as Confidence
from workers.diagnosis.catalogue import Entry as Entry
from workers.diagnosis.catalogue import entries as entries
from workers.diagnosis.folder import NothingToRead as NothingToRead
from workers.diagnosis.folder import diagnose as diagnose
from workers.diagnosis.folder import facts_of as facts_of
from workers.diagnosis.judging import Diagnosis as Diagnosis
from workers.diagnosis.judging import Report as Report
from workers.diagnosis.scanning import LogLine as LogLine
