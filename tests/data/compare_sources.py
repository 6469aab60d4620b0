"""Compare readers with those of the vendors, on files that these wrote.

Usage, first in an environment with the vendor's library, see README.md, then in one with smdwidgets:

    python compare_sources.py write FORMAT FOLDER [COUNT]
    python compare_sources.py read FORMAT FOLDER

The first call writes so many random runs (50), and beside each a file of JSON with what the vendor's library reads in
it. The second call exits with 1 unless every number, step and setting is equal.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

#: What is read in a run: step and number of each curve, and settings.
Answer = dict[str, Any]

FINITE = (0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16, 123456789012345678)
NOT_FINITE = (math.nan, math.inf, -math.inf)


def number(rng: random.Random, finite: bool = False) -> float:
    """Return a random number."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(FINITE if finite else FINITE + NOT_FINITE)
    if kind < 0.3:
        return rng.randrange(-1000, 10**9)
    return rng.gauss(0, 1) * 10 ** rng.randrange(-8, 9)


def wandb(folder: Path, rng: random.Random) -> Answer:
    """Log with `wandb.init` offline; read with W&B's DataStore and protobuf."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import numpy as np
    import wandb as library

    config = {"lr": rng.random(), "model": {"width": rng.randrange(100), "act": "relu"}}
    about: dict[str, Any] = {"tags": ["x", "y"], "group": "g", "notes": "a note", "job_type": "train"}
    settings = library.Settings(x_stats_sampling_interval=0.1)
    with library.init(
        project="compare", name=folder.name, dir=folder, config=config, settings=settings, **about
    ) as run:
        run.define_metric("train/acc", summary="max")
        step = 0
        for _ in range(rng.randrange(1, 200)):
            row = {name: number(rng) for name in ("loss", "train/acc", "größe") if rng.random() < 0.9}
            if rng.random() < 0.3:
                row |= {"part": {"deep": {"x": number(rng)}, "y": number(rng)}, "text": "5", "flag": True}
            if rng.random() < 0.1:
                data = np.array([rng.gauss(0, 1) for _ in range(50)])
                edges = sorted({rng.random() for _ in range(rng.randrange(2, 9))} | {-1.0})
                row |= {"hist": library.Histogram(data, num_bins=rng.choice([8, 64, 512])), "list": [1, 2]}
                row["layer"] = {"own": library.Histogram(np_histogram=np.histogram(data, edges)), "norm": number(rng)}
            run.log(row, step=step)
            step += rng.choice([1, 1, 7])
        run.summary["best"] = number(rng, finite=True)
        run.summary["last"] = {"part": rng.randrange(100)}
    library.teardown()  # its process writes until then
    return wandb_answer(folder)


def wandb_answer(folder: Path) -> Answer:
    """Return what W&B's reader finds in a run."""
    from wandb.proto import wandb_internal_pb2 as proto
    from wandb.sdk.internal.datastore import DataStore

    [file] = folder.glob("wandb/offline-run-*/*.wandb")
    store = DataStore()
    store.open_for_scan(str(file))
    curves: dict[str, dict[int, float]] = {}
    times: dict[str, dict[int, float]] = {}
    histograms: dict[str, dict[int, list[list[float]]]] = {}
    settings: dict[str, Any] = {}
    summary: dict[tuple[str, ...], Any] = {}
    step = 0

    def keys_of(item: Any) -> tuple[str, ...]:
        return (item.key,) if item.key else tuple(item.nested_key)

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    while (data := store.scan_data()) is not None:
        record = proto.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            for item in run.config.update:
                if keys_of(item)[0] != "_wandb":
                    settings |= flat({"/".join(keys_of(item)): json.loads(item.value_json)})
            settings |= {
                "wandb.name": run.display_name, "wandb.group": run.run_group, "wandb.notes": run.notes,
                "wandb.project": run.project, "wandb.job_type": run.job_type, "wandb.tags": ", ".join(run.tags),
            }  # fmt: skip
        elif kind == "history":
            # As an integer, -0 would lose its sign.
            row = {keys_of(item): json.loads(item.value_json, parse_int=float) for item in record.history.item}
            step = int(row[("_step",)])
            media = {keys[:-1]: value for keys, value in row.items() if keys[-1] == "_type"}
            for keys, value in media.items():
                if value == "histogram":
                    edges = row[(*keys, "bins")]
                    rows = zip(edges, edges[1:], row[(*keys, "values")], strict=False)
                    histograms.setdefault(".".join(keys), {})[step] = [[*one] for one in rows]
            for keys, value in row.items():
                if is_number(value) and not keys[0].startswith("_") and keys[:-1] not in media:
                    curves.setdefault(".".join(keys), {})[step] = float(value)
                    times.setdefault(".".join(keys), {})[step] = row[("_timestamp",)]
        elif kind == "stats":
            at = record.stats.timestamp.seconds + record.stats.timestamp.nanos / 1e9
            for item in record.stats.item:
                if is_number(value := json.loads(item.value_json, parse_int=float)):
                    curves.setdefault(f"system.{item.key}", {})[step] = value
                    times.setdefault(f"system.{item.key}", {})[step] = at
        elif kind == "summary":
            summary |= {keys_of(item): json.loads(item.value_json, parse_int=float) for item in record.summary.update}
    media = {keys[:-1] for keys in summary if keys[-1] == "_type"}
    for keys, value in summary.items():
        if keys[0].startswith("_") or keys[:-1] in media:
            continue
        for name, one in flat({".".join(keys): value}, separator=".").items():
            if is_number(one) and not (name in curves and same(one, [*curves[name].values()][-1])):
                name = f"{name} (summary)" if name in curves else name
                curves[name] = {step: float(one)}
    return {"curves": paired(curves), "times": paired(times), "histograms": paired(histograms), "settings": settings}


def trackio(folder: Path, rng: random.Random) -> Answer:
    """Write and read with trackio's own storage."""
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    steps, rows = [], []
    for _ in range(rng.randrange(1, 200)):
        steps.append(steps[-1] + rng.choice([1, 1, 7]) if steps else 0)
        row: dict[str, Any] = {name: number(rng) for name in ("loss", "train/acc", "größe") if rng.random() < 0.9}
        if rng.random() < 0.3:
            row |= {"part": {"x": number(rng)}, "text": "five", "flag": True}
        rows.append(row)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [(start + timedelta(seconds=step)).isoformat() for step in steps]
    config = {"lr": rng.random(), "model": {"width": rng.randrange(100)}}
    SQLiteStorage.bulk_log("compare", "run", rows, steps, times, config)
    curves: dict[str, dict[int, float]] = {}
    for row in SQLiteStorage.get_logs("compare", "run"):
        for name, value in flat(row).items():
            # It writes infinities and NaN as text, and turns only those of the outer names back.
            value = float(value) if value in ("NaN", "Infinity", "-Infinity") else value
            if name not in ("step", "timestamp") and isinstance(value, int | float) and not isinstance(value, bool):
                curves.setdefault(name, {})[row["step"]] = float(value)
    read = SQLiteStorage.get_run_config("compare", "run") or {}
    return {"curves": paired(curves), "settings": flat({name: value for name, value in read.items() if name[0] != "_"})}


def _columns(rng: random.Random) -> dict[str, list[Any]]:
    count = rng.randrange(1, 300)
    steps = [0]
    while len(steps) < count:
        steps.append(steps[-1] + rng.choice([1, 1, 7]))
    columns: dict[str, list[Any]] = {"step": steps}
    for name in ("loss", "train/acc", "größe"):
        columns[name] = [None if rng.random() < 0.1 else float(number(rng, finite=True)) for _ in steps]
    columns["count"] = [rng.randrange(10**6) for _ in steps]
    columns["note"] = [rng.choice("abc") * 50 for _ in steps]
    return columns


def _of_rows(names: list[str], rows: list[tuple[Any, ...]]) -> Answer:
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        for name, value in cells.items():
            if name != "step" and isinstance(value, int | float):
                curves.setdefault(name, {})[int(cells["step"])] = float(value)
    return {"curves": paired(curves), "settings": {}}


def polars(folder: Path, rng: random.Random) -> Answer:
    """Write and read a Parquet table with Polars."""
    import polars as library

    frame = library.DataFrame(_columns(rng)).with_columns(library.col("count").cast(library.UInt32))
    codec = rng.choice(["uncompressed", "snappy", "zstd", "gzip", "lz4", "brotli"])
    frame.write_parquet(folder / "metrics.parquet", compression=codec, row_group_size=rng.randrange(1, 100))  # type: ignore[arg-type]
    read = library.read_parquet(folder / "metrics.parquet")
    return _of_rows(read.columns, read.rows())


def duckdb(folder: Path, rng: random.Random) -> Answer:
    """Write and read a Parquet table with DuckDB."""
    import duckdb as library

    columns = _columns(rng)
    connection = library.connect()
    connection.execute(
        'CREATE TABLE t (step BIGINT, loss DOUBLE, "train/acc" DOUBLE, "größe" DOUBLE, count INTEGER, note TEXT)'
    )
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", list(zip(*columns.values(), strict=True)))
    path = folder / "metrics.parquet"
    codec = rng.choice(["uncompressed", "snappy", "zstd", "gzip", "lz4"])
    connection.execute(f"COPY (SELECT * FROM t ORDER BY step) TO '{path}' (FORMAT parquet, CODEC '{codec}')")
    rows = connection.execute(f"SELECT * FROM '{path}' ORDER BY step").fetchall()
    return _of_rows(list(columns), rows)


def neptune(folder: Path, rng: random.Random) -> Answer:
    """Write and read with the storage of neptune-exporter."""
    import pyarrow as pa
    from neptune_exporter.model import SCHEMA
    from neptune_exporter.storage import ParquetReader, ParquetWriter

    base = {"project_id": "team/project", "run_id": "RUN-1"}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = []
    for name in ("metrics/loss", "metrics/größe"):
        at = 0
        for _ in range(rng.randrange(1, 200)):
            rows.append(
                {**base, "attribute_path": name, "attribute_type": "float_series", "step": at,
                 "timestamp": start + timedelta(seconds=at), "float_value": float(number(rng))}
            )  # fmt: skip
            at += rng.choice([1, 1, 7])
    for path, kind, value in (
        ("params/lr", "float", rng.random()), ("params/layers", "int", rng.randrange(100)), ("sys/name", "string", "näme"),
        ("params/flag", "bool", True), ("sys/tags", "string_set", ["a", "b"]),
    ):  # fmt: skip
        rows.append({**base, "attribute_path": path, "attribute_type": kind, f"{kind}_value": value})
    writer = ParquetWriter(folder)
    with writer.run_writer("team/project", "RUN-1") as run:
        for begin in range(0, len(rows), 60):
            run.save(pa.RecordBatch.from_pylist(rows[begin : begin + 60], SCHEMA))
    reader = ParquetReader(folder)
    curves: dict[str, dict[int, float]] = {}
    settings: dict[str, Any] = {}
    for directory in reader.list_project_directories():
        for file in reader.list_run_files(directory):
            for batch in reader.read_run_data(directory, file):
                for row in batch.to_pylist():
                    kind = row["attribute_type"]
                    if kind == "float_series":
                        curves.setdefault(row["attribute_path"], {})[int(row["step"])] = row["float_value"]
                    else:
                        value = row[f"{kind}_value"]
                        settings[row["attribute_path"]] = ", ".join(value) if isinstance(value, list) else value
    return {"curves": paired(curves), "settings": settings}


def comet(folder: Path, rng: random.Random) -> Answer:
    """Log offline with Comet's library, whose archive holds what was logged as JSON."""
    import zipfile

    from comet_ml import OfflineExperiment

    own = dict.fromkeys(
        ("log_code", "log_git_metadata", "log_git_patch", "log_env_details", "parse_args", "auto_output_logging"), False
    )
    experiment = OfflineExperiment(project_name="compare", workspace="team", offline_directory=str(folder), **own)
    experiment.log_parameters({"lr": rng.random(), "width": rng.randrange(100)})
    step = 0
    for _ in range(rng.randrange(1, 200)):
        for name in ("loss", "acc"):
            experiment.log_metric(name, number(rng), step=step)
        step += rng.choice([1, 1, 7])
    experiment.end()
    [file] = folder.glob("*.zip")
    curves: dict[str, dict[int, float]] = {}
    settings: dict[str, Any] = {}
    with zipfile.ZipFile(file) as archive:
        for line in archive.read("messages.json").splitlines():
            message = json.loads(line)
            payload = message["payload"]
            if message["type"] == "metric_msg":
                metric = payload["metric"]
                curves.setdefault(metric["metricName"], {})[metric["step"]] = float(metric["metricValue"])
            elif message["type"] == "parameter_msg":
                one = payload.get("param") or payload.get("params")
                if one["source"] != "auto-logged":
                    settings[one["paramName"]] = one["paramValue"]
    return {"curves": paired(curves), "settings": settings}


def flat(given: dict[str, Any], prefix: str = "", separator: str = "/") -> dict[str, Any]:
    """Return nested names joined by slashes."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        found |= (
            flat(value, f"{prefix}{name}{separator}", separator) if isinstance(value, dict) else {prefix + name: value}
        )
    return found


def paired(curves: dict[str, dict[int, Any]]) -> dict[str, list[tuple[int, Any]]]:
    """Return curves as JSON can hold them."""
    return {name: list(curve.items()) for name, curve in curves.items()}


FORMATS = {"wandb": wandb, "trackio": trackio, "neptune": neptune, "polars": polars, "duckdb": duckdb, "comet": comet}


def write(format: str, root: Path, count: int) -> None:
    """Write runs, and what the vendor's library reads in them."""
    root.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        folder = root / f"{seed:03d}"
        folder.mkdir(exist_ok=True)
        # A library may keep the folder of its first run.
        child = os.fork()
        if child == 0:
            answer = FORMATS[format](folder, random.Random(seed))
            folder.with_suffix(".json").write_text(json.dumps(answer), encoding="utf-8")
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"error: run {seed} of {format} was not written")


def same(one: float, other: float) -> bool:
    """Return whether two numbers have the same bits; any NaN is one."""
    return one.hex() == other.hex()


def read(root: Path) -> int:
    """Compare; return the number of runs that differ."""
    import smdwidgets

    answers = sorted(root.glob("*.json"))
    wrong = numbers = 0
    for file in answers:
        answer = json.loads(file.read_text(encoding="utf-8"))
        [trial] = smdwidgets.create_trials(file.with_suffix("")).values()
        histograms = answer.get("histograms", {})
        names = answer["curves"].keys() | histograms.keys()
        faults = [f"{name} is missing" for name in names ^ set(trial.tensor_names())]
        for name, pairs in histograms.items():
            buckets = {step: value.tolist() for step, value in trial.tensor(name).values().items()}
            numbers += sum(3 * len(rows) for _, rows in pairs)
            if buckets != dict(pairs):
                faults.append(f"{name} differs")
        for name, pairs in answer.get("times", {}).items():
            table = trial.scalars(name)
            if dict(zip(table["step"].tolist(), table["wall_time"].tolist(), strict=True)) != dict(pairs):
                faults.append(f"times of {name} differ")
        for name, pairs in answer["curves"].items():
            if name not in trial.tensor_names():
                continue
            ours = {step: float(value.item()) for step, value in trial.tensor(name).values().items()}
            theirs = {int(step): float(value) for step, value in pairs}
            numbers += len(theirs)
            if ours.keys() != theirs.keys() or not all(same(ours[step], theirs[step]) for step in theirs):
                faults.append(f"{name} differs")
        settings = trial.hparams()
        faults += [
            f"{name}: {settings.get(name)!r} instead of {value!r}"
            for name, value in answer["settings"].items()
            if settings.get(name) != value
        ]
        if faults or not answer["curves"]:
            wrong += 1
            print(f"{file.stem}: {'; '.join(faults[:5]) or 'no curves'}")
    print(f"{len(answers) - wrong} of {len(answers)} runs are equal; {numbers:,} numbers")
    return wrong or not answers


if __name__ == "__main__":
    action, format, folder, *count = sys.argv[1:]
    root = Path(folder).resolve()
    if action == "write":
        write(format, root, int(count[0]) if count else 50)
    else:
        sys.exit(bool(read(root)))
