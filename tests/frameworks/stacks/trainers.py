"""Trainings whose loop belongs to Transformers, Accelerate or Lightning."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from frameworks.public_trainings import SIZES, Rows, padded_text, text
from frameworks.stacks.fitting import STEPS, Net, classify
from frameworks.stacks.table import Trained, stack

TRANSFORMERS = {
    "needs": ("torch._dynamo", "transformers.trainer", "accelerate"),
    "hooks": ("smdwidgets.hooks.torch.transformers",),
}
LIGHTNING = {"needs": ("torch._dynamo", "lightning"), "hooks": ("smdwidgets.hooks.torch.lightning",)}

# --------------------------------------------------------------------------------------------------------- Transformers


def trainer(record, model, train, kind="Trainer", arguments="TrainingArguments", **options):
    """Train with a Trainer; its log has the losses."""
    import transformers

    settings = getattr(transformers, arguments)(
        "checkpoints",
        **{
            "per_device_train_batch_size": 4,
            "max_steps": STEPS,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "learning_rate": 0.01,
            **options,
        },
    )
    callbacks = record.callbacks("transformers", model)
    one = getattr(transformers, kind)(model, settings, train_dataset=train, eval_dataset=train, callbacks=callbacks)
    one.train()
    return Trained({"scalar/loss": [log["loss"] for log in one.state.log_history if "loss" in log]}, [model])


def rows(count=64):
    tokens, mask = padded_text()
    labels = tokens.masked_fill(mask == 0, -100)
    return {"input_ids": tokens[:count], "attention_mask": mask[:count], "labels": labels[:count]}


@stack(**TRANSFORMERS)
def transformers_classification(record):
    from transformers import BertConfig, BertForSequenceClassification

    given = rows()
    model = BertForSequenceClassification(BertConfig(vocab_size=40, num_labels=3, **SIZES))
    train = Rows(**{**given, "labels": given["input_ids"][:, 0] % 3})
    return trainer(record, model, train, eval_strategy="steps", eval_steps=4, warmup_steps=2)


@stack(**TRANSFORMERS)
def transformers_causal(record):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=1, bos_token_id=0, eos_token_id=1, **SIZES))
    options = {"gradient_accumulation_steps": 2, "bf16": True, "gradient_checkpointing": True, "max_grad_norm": 0.5}
    return trainer(record, model, Rows(**rows()), lr_scheduler_type="cosine", **options)


@stack(**TRANSFORMERS)
def transformers_masked(record):
    """The data set draws the masks."""
    from transformers import BertConfig, BertForMaskedLM

    class Masked(Rows):
        def __getitem__(self, index):
            tokens = super().__getitem__(index)["tokens"]
            at = torch.rand(16) < 0.3
            return {"input_ids": tokens.masked_fill(at, 4), "labels": tokens.masked_fill(~at, -100)}

    model = BertForMaskedLM(BertConfig(vocab_size=40, **SIZES))
    return trainer(record, model, Masked(tokens=text(64, 16, 35) + 5), gradient_accumulation_steps=2)


@stack(**TRANSFORMERS)
def transformers_sequence_to_sequence(record):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=40, d_model=24, d_kv=12, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    kinds = {"kind": "Seq2SeqTrainer", "arguments": "Seq2SeqTrainingArguments"}
    options = {"predict_with_generate": True, "eval_strategy": "steps", "eval_steps": 4, "generation_max_length": 6}
    model = T5ForConditionalGeneration(config)
    return trainer(record, model, Rows(**rows(16)), **kinds, **options)


@stack(**TRANSFORMERS)
def transformers_mixture_of_experts(record):
    """Experts are stacked parameters, whose names have no `weight`."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(vocab_size=40, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2, **SIZES)
    config.output_router_logits, config.bos_token_id, config.eos_token_id = True, 0, 1
    return trainer(record, MixtralForCausalLM(config), Rows(**rows()), optim="adafactor")


# ----------------------------------------------------------------------------------------------------------- Accelerate


@stack(needs=("torch._dynamo", "accelerate"))
def accelerate_with_accumulation(record):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, 4, shuffle=True))
    schedule = accelerator.prepare(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    record(prepared)
    losses, parts = [], []
    for batch in loader:
        with accelerator.accumulate(prepared):
            loss = classify(prepared, batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(prepared.parameters(), 0.1)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        parts.append(loss.item())
        if accelerator.sync_gradients:
            losses.append(sum(parts) / 2)
            parts.clear()
    return Trained({"loss_output_mean": losses}, [model])


# ------------------------------------------------------------------------------------------------------------ Lightning


def fit_with_lightning(record, module, **options):
    import lightning

    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=record.callbacks("lightning", module),
        **options,
    ).fit(module, DataLoader(data, 8, shuffle=True))


@stack(**LIGHTNING)
def lightning_automatic(record):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = Net(), []

        def training_step(self, batch, number):
            loss = classify(self.net, batch)
            self.log("train_loss", loss)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.01)

    module = Module()
    fit_with_lightning(record, module, gradient_clip_val=0.5)
    return Trained(module.losses, [module])


@stack(**LIGHTNING)
def lightning_manual(record):
    """Two optimizers, called by the module."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.make, self.judge, self.losses = Net(4, 16, 8), Net(8, 16, 1), []

        def training_step(self, batch, number):
            makes, judges = self.optimizers()
            false = self.make(torch.randn(8, 4))
            fooled = F.softplus(-self.judge(false)).mean()
            self.manual_backward(fooled)
            makes.step()
            makes.zero_grad()
            judges.zero_grad()
            loss = F.softplus(-self.judge(batch[0])).mean() + F.softplus(self.judge(false.detach())).mean()
            self.manual_backward(loss)
            judges.step()
            judges.zero_grad()
            self.log_dict({"g_loss": fooled, "d_loss": loss})
            self.losses.append((fooled.item(), loss.item()))

        def configure_optimizers(self):
            return [torch.optim.Adam(one.parameters(), 1e-3) for one in (self.make, self.judge)], []

    module = Module()
    fit_with_lightning(record, module)
    return Trained(
        dict(zip(("scalar/g_loss", "scalar/d_loss"), zip(*module.losses, strict=True), strict=True)), [module]
    )
