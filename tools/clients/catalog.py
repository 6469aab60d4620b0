"""The client programs: their paths, how to start them, and why some are skipped.

This file contains only paths, arguments and facts. The programs are read from a clone and never copied into this
repository.

"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Literal

Kind = Literal["script", "tests", "notebook", "rules"]

#: The repositories that have clients, and a file that identifies a clone of each.
DEBUGGER = "sagemaker-debugger"
EXAMPLES = "amazon-sagemaker-examples"

#: Placeholders in arguments and in configuration.
RUN = "{run}"  # the directory that the client writes its run to
PREPARED = "{prepared}"  # a small run that is prepared for clients that only read


@dataclass(frozen=True)
class Environment:
    """A framework with the virtual environment of each side, `.venv-NAME`."""

    smdebug: str
    smdwidgets: str
    note: str = ""


ENVIRONMENTS = {
    "torch": Environment("torch", "torch"),
    "xgboost": Environment("xgboost", "xgboost"),
    "xgboost2": Environment("xgboost2", "xgboost2"),
    "mxnet": Environment("mxnet", "mxnet"),
    "keras": Environment(
        "clients-tensorflow",
        "keras",
        "smdebug runs on TensorFlow 2.12 (Keras 2), smdwidgets on TensorFlow 2.18 or newer (Keras 3)",
    ),
    "none": Environment("torch", "torch"),  # no framework: the Torch environment has smdebug and pytest
}


@dataclass(frozen=True)
class Client:
    """One program and one set of arguments."""

    path: str
    framework: str
    kind: Kind = "script"
    arguments: tuple[str, ...] = ()
    label: str = ""  # distinguishes several runs of one program
    repository: str = DEBUGGER
    config: dict[str, object] | None = None  # hook configuration, passed in SMDEBUG_CONFIG_FILE_PATH
    values: bool = True  # False: initial weights differ between the two environments
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors in the prepared run
    names: tuple[str, ...] = ()  # tensors in the prepared run that the program does not name literally
    not_run: str = ""

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.path} [{self.label}]" if self.label else self.path

    @property
    def slug(self) -> str:
        """A name for files."""
        return "".join(
            c if c.isalnum() or c in "-." else "_" for c in f"{self.path}-{self.framework}-{self.label}"
        ).strip("_")


def _every(interval: int, *collections: str) -> dict[str, object]:
    return {
        "LocalPath": RUN,
        "HookParameters": {"save_interval": str(interval)},
        "CollectionConfigurations": [{"CollectionName": name} for name in collections],
    }


NO_HOROVOD = "needs Horovod, which has no wheel for these frameworks"
NO_SMDISTRIBUTED = "needs smdistributed, which only SageMaker's containers have"
NO_AWS_BUILD = "needs AWS's build of the framework, which creates the hook itself"
NO_SAGEMAKER = "starts a SageMaker job"
NO_PROFILER = "only profiles; the profiler is not part of smdwidgets"
NO_DATASET = "needs a data set that has no stand-in"
NO_GPU = "needs a GPU"

_TORCH = [
    Client(
        "examples/pytorch/scripts/simple.py",
        "torch",
        arguments=("--steps", "40", "--save-frequency", "10", "--random-seed", "True", "--smdebug_path", RUN),
    ),
    *(
        Client(
            "examples/pytorch/scripts/pytorch_hook_demos.py",
            "torch",
            arguments=("--batch-size", "16", "--mode", "--hook-type", hook, "--output-uri", RUN),
            label=hook,
        )
        for hook in ("saveall", "module-input-output", "weights-bias-gradients")
    ),
    Client("examples/pytorch/scripts/torch_resnet.py", "torch"),
    Client(
        "tests/sagemaker/scripts/pytorch/pt_res50_cifar10.py",
        "torch",
        arguments=("--batch_size", "16"),
        config=_every(2, "losses", "weights", "gradients"),
    ),
    Client("examples/pytorch/zero_code_change_examples/horovod_mnist.py", "torch", not_run=NO_HOROVOD),
    Client("examples/pytorch/zero_code_change_examples/smdataparallel_mnist.py", "torch", not_run=NO_SMDISTRIBUTED),
    Client(
        "pytorch_model_debugging/scripts/pytorch_mnist.py",
        "torch",
        arguments=("--epochs", "1", "--no-cuda"),
        repository=EXAMPLES,
        config=_every(2, "losses", "weights", "gradients"),
    ),
]

_XGBOOST = [
    Client(
        f"examples/xgboost/scripts/xgboost_{data}_basic_hook_demo.py",
        framework,
        arguments=("--num_round", "10", "--smdebug_path", RUN),
        label=framework,
    )
    for framework in ("xgboost", "xgboost2")
    for data in ("abalone", "mnist")
]

_KERAS = [
    *(
        Client(
            f"examples/tensorflow2/scripts/{name}.py",
            "keras",
            arguments=("--epoch", "1", "--batch_size", "16", "--save_interval", "4", "--out_dir", RUN),
            values=False,
        )
        for name in ("tf_keras_fit_eager", "tf_keras_fit_non_eager", "tf_keras_gradienttape")
    ),
    Client("examples/tensorflow2/scripts/tf2_save_metrics.py", "keras", "tests", values=False),
    Client("examples/tensorflow2/scripts/tf_save_metrics_gradient_tape.py", "keras", "tests", values=False),
    Client("examples/tensorflow2/scripts/tf_keras_fit_hvd.py", "keras", not_run=NO_HOROVOD),
    Client("examples/tensorflow2/scripts/smdataparallel_mnist_tf2.py", "keras", not_run=NO_SMDISTRIBUTED),
    Client(
        "build_your_own_container_with_debugger/docker/tf_keras_resnet_byoc.py",
        "keras",
        arguments=("--epoch", "1", "--batch_size", "16"),
        repository=EXAMPLES,
        config=_every(4, "losses", "weights", "metrics"),
        values=False,
    ),
    # TensorFlow 1 programs, which run on TensorFlow 2 through tensorflow.compat.v1.
    Client(
        "examples/tensorflow/local/simple.py",
        "keras",
        arguments=("--steps", "10", "--save_interval", "5", "--random_seed", "True", "--out_dir", RUN),
        values=False,
    ),
    Client(
        "examples/tensorflow/local/mnist.py",
        "keras",
        arguments=("--num_epochs", "1", "--save_interval", "5", "--random_seed", "True", "--out_dir", RUN),
        values=False,
    ),
    Client(
        "examples/tensorflow/local/tf_keras_resnet.py",
        "keras",
        arguments=("--epoch", "1", "--batch_size", "16", "--save_interval", "4", "--out_dir", RUN),
        values=False,
    ),
    Client(
        "examples/tensorflow/sagemaker_byoc/simple.py",
        "keras",
        arguments=("--steps", "10", "--random_seed", "True"),
        config=_every(5, "losses", "gradients"),
        values=False,
    ),
    Client(
        "examples/tensorflow/sagemaker_byoc/mnist.py",
        "keras",
        arguments=("--num_epochs", "1", "--random_seed", "True"),
        config=_every(5, "losses", "gradients"),
        values=False,
    ),
    Client(
        "examples/tensorflow/sagemaker_byoc/tf_keras_resnet.py",
        "keras",
        arguments=("--epoch", "1", "--batch_size", "16"),
        config=_every(4, "losses", "weights"),
        values=False,
    ),
    *(
        Client(f"examples/tensorflow/{folder}/{name}.py", "keras", not_run=NO_HOROVOD)
        for folder, name in (
            ("local", "horovod_keras_mnist"),
            ("sagemaker_byoc", "horovod_keras_mnist"),
            ("sagemaker_official_container", "horovod_keras_mnist"),
            ("sagemaker_official_container", "horovod_estimator_mnist"),
        )
    ),
    *(
        Client(f"examples/tensorflow/sagemaker_official_container/{name}.py", "keras", not_run=NO_AWS_BUILD)
        for name in ("simple", "mnist", "tf_keras_resnet")
    ),
]

_MXNET = [
    Client(
        "examples/mxnet/scripts/mxnet_fashionmnist_w_g_b.py",
        "mxnet",
        arguments=("--num_steps", "10", "--save_frequency", "2", "--random_seed", "True", "--output-uri", RUN),
    ),
    Client(
        "tests/resources/mxnet/mnist_gluon_basic_hook_demo.py",
        "mxnet",
        arguments=("--num_steps", "10", "--batch-size", "16", "--random_seed", "True", "--smdebug_path", RUN),
    ),
    Client(
        "examples/mxnet/scripts/mnist_gluon_all_zero_demo.py",
        "mxnet",
        arguments=("--num_steps", "10", "--batch-size", "16", "--random_seed", "True", "--smdebug_path", RUN),
    ),
    *(
        Client(
            f"examples/mxnet/scripts/mnist_gluon_{name}_demo.py",
            "mxnet",
            arguments=("--batch-size", "64", "--smdebug_path", RUN),
        )
        for name in ("save_all", "block_input_output", "model_input_output")
    ),
    Client(
        "examples/mxnet/scripts/mnist_mxnet.py",
        "mxnet",
        arguments=("--batch-size", "64", "--random_seed", "True", "--output-uri", RUN),
    ),
    Client(
        "model_specific_realtime_analysis/autoencoder_mnist/src/autoencoder_mnist.py",
        "mxnet",
        arguments=("--num_epochs", "1"),
        repository=EXAMPLES,
        config=_every(4, "losses", "weights", "gradients"),
    ),
]

_READING = [
    Client("examples/rules/scripts/my_custom_rule.py", "none", "rules", names=("gradient/fc1", "gradient/fc2")),
    Client(
        "tensorflow_keras_custom_rule/rules/my_custom_rule.py",
        "none",
        "rules",
        repository=EXAMPLES,
        names=("gradient/fc1", "gradient/fc2"),
    ),
    Client(
        "pytorch_iterative_model_pruning/custom_rule/check_accuracy.py",
        "none",
        "rules",
        repository=EXAMPLES,
        names=("CrossEntropyLoss_0_input_0", "CrossEntropyLoss_0_input_1"),
        shapes={"CrossEntropyLoss_0_input_0": (20, 4), "CrossEntropyLoss_0_input_1": (20,)},
    ),
    Client(
        "examples/mxnet/notebooks/MNISTSimpleInteractiveAnalysis.ipynb",
        "mxnet",
        "notebook",
        names=("gradient/sequential_dense0_weight", "sequential_input_0", "sequential_output0"),
        shapes={"sequential_input_0": (100, 784), "sequential_output0": (100, 10)},
    ),
    Client(
        "examples/mxnet/notebooks/mxnet-realtime-analysis.ipynb",
        "mxnet",
        "notebook",
        names=("conv0_output0", "conv0_weight"),
        shapes={"conv0_output0": (4, 1, 6, 6), "conv0_weight": (4, 1, 5, 5)},
    ),
    Client(
        "examples/pytorch/notebooks/PyTorch-SimpleInteractiveAnalysis.ipynb",
        "torch",
        "notebook",
        names=("gradient/Net_fc1.weight", "Net_input_0", "Net_output0"),
        shapes={"Net_input_0": (100, 784), "Net_output0": (100, 10)},
    ),
    *(
        Client(
            f"examples/xgboost/{name}.ipynb",
            "xgboost",
            "notebook",
            names=tuple(names.split()),
            shapes={"labels": (50,), "predictions": (50,)},
        )
        for name, names in (
            ("notebooks/xgboost_abalone", "f7/feature_importance f8/feature_importance f8/average_shap train-rmse"),
            ("sagemaker-notebooks/xgboost", "f8/feature_importance f8/average_shap train-rmse validation-rmse"),
            (
                "sagemaker-notebooks/xgboost_classification",
                "f8/feature_importance f8/average_shap train-merror validation-merror labels predictions",
            ),
            (
                "sagemaker-notebooks/xgboost_regression",
                "f8/feature_importance f8/average_shap train-rmse validation-rmse",
            ),
        )
    ),
    Client(
        "examples/tensorflow/notebooks/keras-sentiment/Loss_Accuracy.ipynb",
        "none",
        "notebook",
        names=("loss", "acc", "val_loss", "val_acc"),
    ),
    Client(
        "pytorch_model_debugging/pytorch_script_change_smdebug.ipynb",
        "torch",
        "notebook",
        repository=EXAMPLES,
        names=("NLLLoss_output_0",),
        shapes={"NLLLoss_output_0": ()},
    ),
    *(
        Client(
            f"{name}.ipynb",
            "none",
            "notebook",
            repository=EXAMPLES,
            names=(
                "train-auc",
                "validation-auc",
                *(f"feature_importance/{kind}/f{i}" for kind in ("cover", "gain", "weight") for i in range(4)),
                *(f"average_shap/f{i}" for i in range(4)),
                "full_shap/f0",
            ),
            shapes={"full_shap/f0": (120, 5)},
        )
        for name in (
            "xgboost-census-debugger-rules",
            "end_to_end_music_recommendation/03_train_deploy_debugger_explain_monitor_registry",
        )
    ),
    Client(
        "tensorflow_builtin_rule/tf-mnist-builtin-rule.ipynb",
        "none",
        "notebook",
        repository=EXAMPLES,
        names=("loss", "accuracy", "val_loss"),
    ),
    Client(
        "model_specific_realtime_analysis/autoencoder_mnist/autoencoder_mnist.ipynb",
        "mxnet",
        "notebook",
        repository=EXAMPLES,
        names=("conv0_hybridsequential0_dense0_output_0", "l2loss0_input_1"),
        shapes={"conv0_hybridsequential0_dense0_output_0": (10, 20), "l2loss0_input_1": (10,)},
    ),
    Client(
        "pytorch_iterative_model_pruning/iterative_model_pruning_resnet.ipynb",
        "torch",
        "notebook",
        repository=EXAMPLES,
        names=("layer1.0.relu_0_output_0", "gradient/layer1.0.relu_ReLU_output"),
        shapes={"layer1.0.relu_0_output_0": (2, 8, 4, 4), "gradient/layer1.0.relu_ReLU_output": (2, 8, 4, 4)},
    ),
    Client(
        "bert_attention_head_view/bert_attention_head_view.ipynb",
        "mxnet",
        "notebook",
        repository=EXAMPLES,
        names=(
            "input_tokens",
            *(f"bertencoder0_transformer{i}_multiheadattentioncell0_output_1" for i in range(2)),
            *(f"bertencoder0_transformer{i}_{part}_output_0" for i in range(2) for part in ("key", "query")),
        ),
        shapes={
            **{f"bertencoder0_transformer{i}_multiheadattentioncell0_output_1": (2, 3, 5, 5) for i in range(2)},
            **{
                f"bertencoder0_transformer{i}_{part}_output_0": (2, 5, 6) for i in range(2) for part in ("key", "query")
            },
        },
    ),
    Client(
        "build_your_own_container_with_debugger/debugger_byoc.ipynb",
        "none",
        "notebook",
        repository=EXAMPLES,
        names=("loss", "scalar/train_steps_per_epoch", "scalar/valid_steps_per_epoch"),
    ),
    Client(
        "sentiment_parallel_batch/huggingface_sentiment_parallel_batch.ipynb",
        "none",
        "notebook",
        repository=EXAMPLES,
        names=("DistilBertForSequenceClassification_classifier.weight", "CrossEntropyLoss_output_0"),
    ),
]

CATALOG = (*_TORCH, *_XGBOOST, *_KERAS, *_MXNET, *_READING)


@dataclass(frozen=True)
class Group:
    """Files of a repository that are clients of one kind.

    The first group that matches a path decides.
    """

    pattern: str
    framework: str
    kind: Kind
    not_run: str = ""


#: Files that are found in a clone and are not in the catalog.
DISCOVERED = (
    Group("tests/zero_code_change/test_*.py", "none", "tests", NO_AWS_BUILD),
    Group("tests/pytorch/test_distributed_training.py", "torch", "tests", NO_GPU),
    Group("tests/pytorch/test_data_parallel.py", "torch", "tests", NO_GPU),
    Group("tests/pytorch/test_config_validator_pytorch.py", "torch", "tests", NO_PROFILER),
    Group("tests/pytorch/test_*.py", "torch", "tests"),
    Group("tests/xgboost/test_xgboost_error_handling_agent.py", "xgboost", "tests", NO_AWS_BUILD),
    Group("tests/xgboost/test_*.py", "xgboost", "tests"),
    Group("tests/mxnet/test_*.py", "mxnet", "tests"),
    Group("tests/tensorflow2/test_config_validator_tensorflow.py", "keras", "tests", NO_PROFILER),
    Group("tests/tensorflow2/test_estimator.py", "keras", "tests", "trains a TensorFlow 1 Estimator"),
    Group("tests/tensorflow2/test_keras_mirrored.py", "keras", "tests", NO_GPU),
    Group("tests/tensorflow2/test_*.py", "keras", "tests"),
    Group("tests/tensorflow/*", "keras", "tests", "trains with TensorFlow 1 sessions and Estimators"),
    Group("tests/analysis/trials/test_s3.py", "none", "tests", "reads from a bucket in S3"),
    Group("tests/analysis/*/test_*.py", "none", "tests"),
    Group("tests/rules/action/*", "none", "tests", NO_SAGEMAKER),
    Group("tests/core/test_*.py", "none", "tests", "tests of smdebug's internal modules"),
    Group("tests/profiler/*", "none", "tests", NO_PROFILER),
    Group("tests/*", "none", "script", "helper of other tests"),
    Group("examples/*.ipynb", "none", "notebook"),
    Group("examples/*.py", "", "script"),  # the framework is found from the imports
)


def group_of(path: str) -> Group | None:
    """The first group that a path belongs to."""
    return next((group for group in DISCOVERED if fnmatch(path, group.pattern)), None)


@dataclass(frozen=True)
class Known:
    """A difference that is intended, and where the documentation explains it."""

    client: str  # pattern of the client's name
    difference: str  # pattern of the difference
    reason: str
    documented: str


KNOWN: tuple[Known, ...] = (
    Known(
        "*",
        "ends with SMDebugValueError: mode_save_configs must be a dictionary*for AttributeError*",
        "invalid arguments raise SMDebugValueError",
        "docs/differences.md#collections",
    ),
    *(
        Known(
            "tests/*",
            f"* fails: {error}*",
            "the test imports an internal name of smdebug",
            "docs/moving.md#real-clients",
        )
        for error in (
            "ImportError: cannot import name '*' from 'smdwidgets.core.*'",
            "ModuleNotFoundError: smdebug.* is not available",
        )
    ),
    *(
        Known(
            client,
            f"run: values of {collection} differ*",
            "MXNet weights are saved as the step uses them, not as it leaves them",
            "docs/hooks.md#where-this-differs-from-smdebug",
        )
        for client in ("examples/mxnet/*", "tests/resources/mxnet/*", "model_specific_realtime_analysis/*")
        for collection in ("weights", "biases")
    ),
    Known(
        "tensorflow_builtin_rule/tf-mnist-builtin-rule.ipynb",
        "cell 4 is *'1.0.34'*",
        "smdebug.__version__ is the version of smdwidgets",
        "docs/moving.md#real-clients",
    ),
    Known(
        "pytorch_iterative_model_pruning/iterative_model_pruning_resnet.ipynb",
        "cell * ends with TypeError for TensorUnavailable",
        "the cell passes a stand-in object as a tensor name, and a name that is not a string raises TypeError",
        "docs/moving.md#real-clients",
    ),
    Known(
        "examples/tensorflow/*",
        "ends with AttributeError: module 'smdwidgets.tensorflow' has no attribute '*Hook'*",
        "TensorFlow 1 sessions are not supported",
        "docs/moving.md#not-offered",
    ),
)


def known(client: str, difference: str) -> Known | None:
    """The entry of the table that explains a difference; None if nothing does."""
    return next((one for one in KNOWN if fnmatch(client, one.client) and fnmatch(difference, one.difference)), None)
