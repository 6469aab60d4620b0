"""Write the golden runs of other formats with the programs that write them.

Usage: `python write_sources.py FORMAT FOLDER`.

Each format needs its writer, see README.md. The numbers are the same in all formats: `LOSSES` and `VAL_LOSSES`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

STEPS = range(0, 60, 10)
LOSSES = [2.5, 1.75, 1.25, 1.0, 0.875, 0.75]
VAL_LOSSES = {20: 1.5, 50: 1.125}


def lightning(folder: Path) -> None:
    """Write metrics.csv and checkpoints of a training with Lightning."""
    import lightning
    import torch
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"lr": 0.125, "width": 4})
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, at):
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, at):
            self.log("val_loss", self.layer(batch[0]).pow(2).mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.125)

    lightning.seed_everything(7)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=3, logger=CSVLogger(folder, name="", version=""), log_every_n_steps=2, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(folder / "checkpoints", save_top_k=-1, save_weights_only=True)],
    )  # fmt: skip
    trainer.fit(Module(), data, data)


def transformers(folder: Path) -> None:
    """Write trainer_state.json and safetensors of the checkpoints of the Trainer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8,
    )  # fmt: skip
    data = [{"input_ids": torch.randint(0, 16, (8,)), "labels": torch.tensor(at % 2)} for at in range(24)]
    arguments = TrainingArguments(
        folder, max_steps=6, per_device_train_batch_size=4, logging_steps=1, save_steps=2, eval_strategy="steps",
        eval_steps=3, report_to=[], use_cpu=True, seed=7, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    for name in ("optimizer.pt", "training_args.bin"):
        for file in folder.rglob(name):
            file.unlink()  # not read, and most of the bytes


def sharded(folder: Path) -> None:
    """Write safetensors in two files with an index, in float32 and bfloat16."""
    import torch
    from safetensors.torch import save_file

    for step in (100, 200):
        target = folder / f"checkpoint-{step}"
        target.mkdir(parents=True)
        parts = {
            "model-00001-of-00002.safetensors": {"a.weight": torch.arange(6.0).reshape(2, 3) + step},
            "model-00002-of-00002.safetensors": {
                "a.bias": torch.full((2,), step, dtype=torch.bfloat16),
                "empty": torch.empty(0, 3),
            },
        }
        for name, tensors in parts.items():
            save_file(tensors, target / name)
        names = {tensor: name for name, tensors in parts.items() for tensor in tensors}
        (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def torch_checkpoints(folder: Path) -> None:
    """Write checkpoints with torch.save: states, views, a model, the old format."""
    import torch

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    folder.mkdir(parents=True)
    for step in (1, 2):
        with torch.no_grad():
            model[0].weight += 1
        state = {"model_state_dict": model.state_dict(), "global_step": step, "note": "text", "lr": 0.5}
        torch.save(state, folder / f"step_{step}.pt")
    shared = torch.arange(12.0).reshape(3, 4)
    torch.save(
        {"transposed": shared.T, "row": shared[1], "half": shared.half(), "flag": torch.tensor([True])},
        folder / "step_3.pt",
    )
    torch.save(model, folder / "step_4.pt")
    torch.save(model.state_dict(), folder / "step_5.pt", _use_new_zipfile_serialization=False)


def distributed(folder: Path) -> None:
    """Write distributed checkpoints of FSDP, and what PyTorch reads from them."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    folder.mkdir(parents=True)
    rendezvous = folder / "rendezvous"
    torch.multiprocessing.spawn(_train_sharded, (str(folder), str(rendezvous)), nprocs=2)
    rendezvous.unlink(missing_ok=True)
    truth = {}
    for step in (1, 2):
        whole = folder / "whole.pt"
        dcp_to_torch_save(folder / f"step-{step}", whole)
        state = torch.load(whole)
        whole.unlink()
        states = state["optim"]["state"]
        tensors = state["model"] | {
            f"optimizer/0/{name}/{kind}": one for name in states for kind, one in states[name].items()
        }
        truth[step] = {
            name: [
                str(one.dtype).removeprefix("torch."),
                list(one.shape),
                hashlib.sha256(one.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest(),
            ]
            for name, one in tensors.items()
        }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


def _train_sharded(rank: int, folder: str, rendezvous: str) -> None:
    import torch
    from torch import distributed
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    distributed.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=2)
    mesh = distributed.device_mesh.init_device_mesh("cpu", (2,))
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 0.125)
    for step in (1, 2):
        model(torch.randn(4, 3)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        weights, states = get_state_dict(model, optimizer)
        columns = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4) * step
        weights["columns"] = distribute_tensor(columns, mesh, [Shard(1)])
        weights["count"] = torch.tensor(step)
        weights["empty"] = torch.zeros(0, 3)
        checkpoint.save({"model": weights, "optim": states, "note": "text"}, checkpoint_id=f"{folder}/step-{step}")
    distributed.destroy_process_group()


def keras(folder: Path) -> None:
    """The log of Keras' CSVLogger, with a semicolon as separator."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    folder.mkdir(parents=True)
    data = np.random.default_rng(7).normal(size=(32, 5)).astype("float32")
    model.fit(
        data[:, :4], data[:, 4:], epochs=5, validation_split=0.25, verbose=0,
        callbacks=[keras.callbacks.CSVLogger(folder / "training.csv", separator=";")],
    )  # fmt: skip


def keras_overfit(folder: Path) -> None:
    """What a training that overfits prints, and its history as JSON."""
    import contextlib
    import json

    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(96, 16)).astype("float32")
    # Most of a target is noise.
    targets = inputs @ generator.normal(size=16) + 4 * generator.normal(size=96)
    hidden = [keras.layers.Dense(128, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((16,)), *hidden, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss="mse", metrics=["mae"])
    for part in ("log", "history"):
        (folder / part).mkdir(parents=True)
    with (folder / "log" / "train.log").open("w") as file, contextlib.redirect_stdout(file):
        result = model.fit(
            inputs[:64], targets[:64], validation_data=(inputs[64:], targets[64:]), epochs=60, batch_size=16, verbose=2
        )
    (folder / "history" / "history.json").write_text(json.dumps(result.history))


def dvclive(folder: Path) -> None:
    """The files of DVCLive."""
    from dvclive import Live

    live = Live(str(folder), save_dvc_exp=False, dvcyaml=None, monitor_system=False)
    live.log_params({"lr": 0.125, "model": {"width": 4}})
    for step, loss in zip(STEPS, LOSSES, strict=True):
        live.step = step
        live.log_metric("train/loss", loss)
        if step in VAL_LOSSES:
            live.log_metric("val_loss", VAL_LOSSES[step])
        live.make_summary()
    live.end()


def stable_baselines(folder: Path) -> None:
    """Write progress.csv with the logger of Stable-Baselines3.

    A name that appears later makes it rewrite the file.
    """
    from stable_baselines3.common.logger import configure

    logger = configure(str(folder), ["csv"])
    for step, loss in zip(STEPS, LOSSES, strict=True):
        logger.record("train/loss", loss)
        logger.record("rollout/ep_rew_mean", -loss if step else float("nan"))
        if step in VAL_LOSSES:
            logger.record("eval/mean_reward", -VAL_LOSSES[step])
        logger.record("time/total_timesteps", step)
        logger.dump(step)
    logger.close()


def yolo(folder: Path) -> None:
    """Write results.csv and args.yaml as Ultralytics documents them.

    Its training is too large to run here.
    """
    folder.mkdir(parents=True)
    names = [
        "epoch",
        "time",
        "train/box_loss",
        "train/cls_loss",
        "metrics/precision(B)",
        "metrics/mAP50(B)",
        "val/box_loss",
        "lr/pg0",
    ]
    lines = [",".join(f"{name:>23}" for name in names)]
    for epoch, loss in enumerate(LOSSES, 1):
        numbers = [epoch, 10.5 * epoch, loss, loss / 2, 1 - loss / 3, 1 - loss / 4, loss + 0.25, 0.01]
        lines.append(",".join(f"{number:>23.5g}" for number in numbers))
    (folder / "results.csv").write_text("\n".join(lines) + "\n")
    (folder / "args.yaml").write_text("task: detect\nmode: train\nepochs: 6\nlr0: 0.01\nname: null\ncos_lr: false\n")


def mlflow(folder: Path) -> None:
    """The same runs in MLflow's store of files and in its SQLite store."""
    import os

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow import MlflowClient

    folder.mkdir(parents=True)
    for uri in (f"file://{folder}/mlruns", f"sqlite:///{folder}/mlflow.db"):
        client = MlflowClient(uri)
        experiment = client.create_experiment("golden", artifact_location=f"file://{folder}/artifacts")
        for at, status in enumerate(("FINISHED", "RUNNING")):
            run = client.create_run(experiment, run_name=f"run {at}", start_time=1_700_000_000_000)
            client.log_param(run.info.run_id, "lr", 0.125)
            client.log_param(run.info.run_id, "model/width", "4")
            client.set_tag(run.info.run_id, "purpose", "golden")
            for step, loss in zip(STEPS, LOSSES, strict=True):
                client.log_metric(
                    run.info.run_id, "train/loss", loss + at, timestamp=1_700_000_000_000 + 1000 * step, step=step
                )
                if step in VAL_LOSSES:
                    value = float("nan") if at and step == 50 else VAL_LOSSES[step]
                    client.log_metric(
                        run.info.run_id, "val_loss", value, timestamp=1_700_000_000_000 + 1000 * step, step=step
                    )
            if status == "FINISHED":
                client.set_terminated(run.info.run_id, status, end_time=1_700_000_100_000)


def comet(folder: Path) -> None:
    """Write the archive of an offline experiment with Comet's library."""
    from comet_ml import OfflineExperiment

    folder.mkdir(parents=True)
    own = dict.fromkeys(
        ("log_code", "log_git_metadata", "log_git_patch", "log_env_details", "parse_args", "auto_output_logging"), False
    )
    experiment = OfflineExperiment(project_name="golden", workspace="team", offline_directory=str(folder), **own)
    experiment.set_name("first")
    experiment.add_tags(["a", "b"])
    experiment.log_parameters({"lr": 0.125, "model": {"width": 4}})
    for step, loss in zip(STEPS, LOSSES, strict=True):
        experiment.log_metric("loss", loss, step=step)
        if step in VAL_LOSSES:
            with experiment.validate():
                experiment.log_metric("loss", VAL_LOSSES[step], step=step)
    experiment.log_metric("spread", float("nan"), step=50)
    experiment.end()
    next(folder.glob("*.zip")).rename(folder / "experiment.zip")


def inspect_statistics(folder: Path) -> None:
    """Write the statistics log of two ranks with the logger of nvdlfw-inspect."""
    import logging

    from nvdlfw_inspect.logging import FileLogger

    for rank in range(2):
        logger = FileLogger("nvdlfw_inspect", str(folder))
        logger._initialize_stats_logger("nvdlfw_inspect_statistics_logs")
        for step, loss in zip(STEPS, LOSSES, strict=True):
            logger.log_scalar("decoder.fc1_activation_l2_norm", 100 * loss, step)
            logger.log_scalar("decoder.fc1_gradient_underflows%", loss + rank, step)
        logger.log_scalar("decoder.fc1_gradient_max", float("nan"), 50)
        for handler in [*logging.getLogger("Default Statistics").handlers]:
            logging.getLogger("Default Statistics").removeHandler(handler)
            handler.close()
        if rank == 0:
            file = folder / "nvdlfw_inspect_statistics_logs" / "nvdlfw_inspect_globalrank-0.log"
            first = file.read_bytes()
    file.rename(file.with_name("nvdlfw_inspect_globalrank-1.log"))
    file.write_bytes(first)


def wandb(folder: Path) -> None:
    """Write the file of a run offline with W&B's library."""
    import os

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_CODE": "true"}
    import wandb as library

    folder.mkdir(parents=True)
    settings = library.Settings(x_disable_stats=True, x_disable_meta=True, console="off", host="host")
    config = {"lr": 0.125, "model": {"width": 4}}
    with library.init(
        project="golden", name="first", group="group", tags=["a", "b"], config=config, dir=folder, settings=settings
    ) as run:
        for step, loss in zip(STEPS, LOSSES, strict=True):
            row = {"train/loss": loss, "part": {"deep": {"x": -loss}}, "note": "text", "flag": True}
            if step in VAL_LOSSES:
                row |= {"val_loss": VAL_LOSSES[step], "hist": library.Histogram([1.0, 2.0, 2.0])}
            run.log(row | ({"spread": float("nan")} if step == 50 else {}), step=step)
    library.teardown()
    [file] = (folder / "wandb").glob("offline-run-*/*.wandb")
    file.rename(folder / "run-first.wandb")
    shutil.rmtree(folder / "wandb")


def wandb_overfit(folder: Path) -> None:
    """Log the history of `keras_overfit`, beside this folder, with W&B."""
    import json
    import os

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_CODE": "true"}
    import numpy as np
    import wandb as library

    history = json.loads((folder.parent / "keras_overfit" / "history" / "history.json").read_text())
    folder.mkdir(parents=True)
    settings = library.Settings(x_disable_meta=True, console="off", host="host", x_stats_sampling_interval=0.1)
    generator = np.random.default_rng(5)
    with library.init(
        project="golden", name="overfit", notes="a note", job_type="train", dir=folder, settings=settings
    ) as run:
        run.define_metric("val_loss", summary="min")
        for epoch, (loss, val_loss) in enumerate(zip(history["loss"], history["val_loss"], strict=True)):
            row = {"loss": loss, "val_loss": val_loss, "epoch": epoch}
            if epoch % 20 == 0:
                row["gradients"] = library.Histogram(generator.normal(size=1000) * loss)
                row["layer"] = {"weights": library.Histogram(np_histogram=([3, 1], [0.0, 0.5, 2.0])), "norm": epoch + 1}
            run.log(row, step=epoch)
        run.summary["best_epoch"] = int(np.argmin(history["val_loss"]))
    library.teardown()
    [file] = (folder / "wandb").glob("offline-run-*/*.wandb")
    file.rename(folder / "run-overfit.wandb")
    shutil.rmtree(folder / "wandb")


def trackio(folder: Path) -> None:
    """Write two runs with the storage of trackio."""
    import os
    from datetime import UTC, datetime, timedelta

    folder.mkdir(parents=True)
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [(start + timedelta(seconds=step)).isoformat() for step in STEPS]
    for at, name in enumerate(("first", "second")):
        rows = [
            {"train/loss": loss + at, "part": {"x": -loss}, "note": "text"}
            | ({"val_loss": VAL_LOSSES[step]} if step in VAL_LOSSES else {})
            | ({"spread": float("nan")} if step == 50 else {})
            for step, loss in zip(STEPS, LOSSES, strict=True)
        ]
        SQLiteStorage.bulk_log("golden", name, rows, [*STEPS], times, {"lr": 0.125, "model": {"width": 4}})
    for file in folder.iterdir():
        if file.suffix != ".db":
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def neptune(folder: Path) -> None:
    """Write one run with the storage of neptune-exporter."""
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa
    from neptune_exporter.model import SCHEMA
    from neptune_exporter.storage import ParquetWriter

    base = {"project_id": "team/golden", "run_id": "GOLD-1"}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    curves = {"train/loss": dict(zip(STEPS, LOSSES, strict=True)), "val/loss": VAL_LOSSES, "spread": {50: float("nan")}}
    rows = [
        {**base, "attribute_path": f"metrics/{name}", "attribute_type": "float_series", "step": step,
         "timestamp": start + timedelta(seconds=step), "float_value": value}
        for name, curve in curves.items() for step, value in curve.items()
    ]  # fmt: skip
    for path, kind, value in (
        ("params/lr", "float", 0.125), ("params/width", "int", 4), ("sys/name", "string", "first"),
        ("sys/tags", "string_set", ["a", "b"]), ("model", "file", {"path": "model.pt"}),
    ):  # fmt: skip
        rows.append({**base, "attribute_path": path, "attribute_type": kind, f"{kind}_value": value})
    with ParquetWriter(folder).run_writer("team/golden", "GOLD-1") as run:
        run.save(pa.RecordBatch.from_pylist(rows, SCHEMA))


def parquet(folder: Path) -> None:
    """Write the same table with Polars and with DuckDB."""
    import duckdb
    import polars

    columns = {
        "step": [*STEPS],
        "train/loss": LOSSES,
        "val_loss": [VAL_LOSSES.get(step) for step in STEPS],
        "note": ["text"] * len(LOSSES),
    }
    frame = polars.DataFrame(columns)
    for name in ("polars", "duckdb"):
        (folder / name).mkdir(parents=True)
    frame.write_parquet(folder / "polars" / "metrics.parquet", row_group_size=4)
    duckdb.sql("SELECT * FROM frame").write_parquet(str(folder / "duckdb" / "metrics.parquet"), compression="zstd")


FORMATS = {
    "lightning": lightning, "transformers": transformers, "sharded": sharded, "torch": torch_checkpoints, "distributed": distributed, "keras": keras,
    "dvclive": dvclive, "stable_baselines": stable_baselines, "yolo": yolo, "mlflow": mlflow,
    "comet": comet, "inspect": inspect_statistics, "wandb": wandb, "keras_overfit": keras_overfit, "wandb_overfit": wandb_overfit, "trackio": trackio, "neptune": neptune, "parquet": parquet,
}  # fmt: skip


def main(name: str, folder: str) -> None:
    """Write one format into its folder below `folder`."""
    target = Path(folder).resolve() / name
    shutil.rmtree(target, ignore_errors=True)
    FORMATS[name](target)


if __name__ == "__main__":
    main(*sys.argv[1:])
