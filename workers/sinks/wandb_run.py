"""Weights & Biases sink. Each attempt is a W&B run, in a group for our run.

W&B's own process sends in the background and loses unsent rows when it is killed, so a sink that is opened again asks
the server for the next step and continues there. Without a key, the files stay in the attempt's folder for `wandb
sync`. Each step is logged once.
"""

from collections.abc import Sequence
from typing import Any

from workers.contract.run.sinks import split_project
from workers.sinks.sink import DONE, STOPPED, About, Row, Sink

INIT_S = 60


class WandbSink(Sink):
    def open(self, about: About, state: dict[str, Any]) -> None:
        import wandb

        server = {"base_url": about.address} if about.address else {}
        settings = wandb.Settings(
            api_key=about.key or None,
            console="off",
            disable_code=True,
            disable_git=True,
            init_timeout=INIT_S,
            save_code=False,
            silent=True,
            x_disable_meta=True,
            x_disable_stats=True,
            **server,
        )
        entity, project = split_project(about.project)
        self._run = wandb.init(
            entity=entity or None,
            project=project,
            name=about.name,
            id=about.attempt_id,
            group=about.run_id,
            dir=str(about.folder),
            config={**about.config, "run_page": about.link},
            notes=about.link,
            mode="online" if about.key else "offline",
            resume="allow" if about.key else None,
            reinit="create_new",
            settings=settings,
        )
        self.resends = bool(about.key)
        self._first = self._run.step if self.resends else 0
        self._step = self._first if self.resends else int(state.get("step", 0))

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        for row in rows:
            if row.step < self._first:
                continue
            self._step = max(self._step, row.step)
            self._run.log(row.values, step=self._step)
        return {"step": self._step}

    def close(self, reason: str) -> None:
        self._run.finish(exit_code=0 if reason in (*DONE, *STOPPED) else 1)
