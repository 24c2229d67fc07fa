"""The command line: ``dualwave`` and ``python -m dualwave``.

Only Typer is imported here. torch, transformers and the configs are imported inside the commands,
so that ``--help`` answers at once. What a user got wrong (``ValueError``, ``OSError``) becomes one
sentence on stderr and exit code 2; anything else is a bug and keeps its traceback.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dualwave import __version__

USER_MISTAKE = 2
"""Exit code for a wrong argument, config, file or data set; the one that option errors have too."""

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    name="dualwave",
    help="Vision-text dual-stream transformers: train, evaluate saliency, load checkpoints.",
    epilog="Start with: dualwave demo",
    no_args_is_help=True,
    context_settings=_CONTEXT,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
evaluation = typer.Typer(
    help="Evaluate a checkpoint.",
    no_args_is_help=True,
    context_settings=_CONTEXT,
    rich_markup_mode=None,
)
app.add_typer(evaluation, name="eval")
bench = typer.Typer(
    help="Measure the kernels.",
    no_args_is_help=True,
    context_settings=_CONTEXT,
    rich_markup_mode=None,
)
app.add_typer(bench, name="bench")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FIELD=VALUE",
        help="Fields of the config to change, such as schedule.steps=200.",
        show_default=False,
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dualwave {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    overrides: Overrides = None,
    output: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the scenes and of the training run.")
    ] = 0,
) -> None:
    """Train and evaluate on handwriting, and write a report.

    Makes digit scenes, trains, evaluates, saves, reloads, and writes report.html. Takes a few
    minutes on two CPU cores. An earlier demo in the same folder is replaced (its scenes are used
    again if they were made with the same numbers); a folder that holds anything else is refused.
    The fields are those of `dualwave train`, and scenes.train, scenes.validation and scenes.test
    for the numbers of scenes.

    \b
    Examples:
      dualwave demo
      dualwave demo --output runs/quick schedule.steps=50 scenes.train=500
    """
    started = time.perf_counter()
    from dualwave.demo import run_demo

    run_demo(output, seed=seed, overrides=overrides or [], started=started)


@app.command()
def train(
    config: Annotated[
        str,
        typer.Option(help="A YAML file, or the name of a shipped one.", show_default=False),
    ],
    overrides: Overrides = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")
    ] = False,
) -> None:
    """Train a dual-stream model as a config file describes.

    Start it with torchrun for more than one process.

    \b
    Examples:
      dualwave train --config demo.yaml data.path=my_data output_dir=runs/mine
      dualwave train --config demo.yaml data.path=my_data output_dir=runs/mine --resume
      torchrun --nproc-per-node 2 -m dualwave train --config demo.yaml data.path=my_data
    """
    from dualwave.train.config import load_config
    from dualwave.train.run import train as train_model

    result = train_model(load_config(config, overrides or []), resume=resume)
    if os.environ.get("RANK", "0") == "0":
        typer.echo(
            f"trained {result.steps} steps in {result.seconds:.1f} s; model: {result.model_dir}"
        )


@evaluation.callback()
def _evaluation() -> None:
    pass


@evaluation.command("model")
def evaluate_checkpoint(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Folder of a saved model.", show_default=False),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="A saved data set, a folder of images with metadata.csv, or a hub name.",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD=VALUE",
            help="Fields of the config's data section, such as data.caption_column=sentence.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="The split to evaluate on; data.test_split (test) if not given."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there as well.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images predicted at a time.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the caption shuffle.")] = 0,
) -> None:
    """Score a model's saliency maps against masks, beside two baselines.

    The baselines are the same model with captions shuffled between scenes (how much the words
    matter) and a centre prior (no model at all).

    \b
    Examples:
      dualwave eval model runs/demo/model --data runs/demo/data
      dualwave eval model runs/demo/model --data my_data --split validation --json scores.json
      dualwave eval model runs/demo/model --data my_data data.caption_column=sentence
    """
    from dualwave.evaluate_model import evaluate_command

    evaluate_command(
        checkpoint,
        data=data,
        split=split,
        overrides=overrides or [],
        json_file=json_file,
        batch_size=batch_size,
        seed=seed,
    )


@bench.callback()
def _bench() -> None:
    pass


@bench.command("compile")
def bench_compile(
    full: Annotated[
        bool, typer.Option("--full", help="More sizes, precisions and arguments: many minutes.")
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="sm_80, sm_90, sm_100 or gfx942; may be given again. All of them by default.",
            show_default=False,
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the rows there as well.")
    ] = None,
) -> None:
    """Compile every kernel for every target; no accelerator is needed.

    Prints registers, spills, shared memory and matrix instructions, and ends with exit code 1 where
    a kernel spills, takes more shared memory than there is, or misses the matrix units. Results are
    cached by source, so a second run takes seconds.

    \b
    Examples:
      dualwave bench compile
      dualwave bench compile --target sm_90 --json kernels.json
    """
    # Kernels are interpreted, not compiled, where this is set when they are imported.
    os.environ.pop("TRITON_INTERPRET", None)
    from dualwave.bench_compile import bench_compile as compile_kernels

    if not compile_kernels(target or [], full=full, json_file=json_file):
        raise typer.Exit(1)


@app.command()
def predict(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Folder of a saved model.", show_default=False),
    ],
    images: Annotated[
        list[Path], typer.Argument(help="Image files.", metavar="IMAGE", show_default=False)
    ],
    text: Annotated[
        str, typer.Option(help="What to look for, in all the images.", show_default=False)
    ],
    output: Annotated[Path, typer.Option(help="Folder for the PNG files.")] = Path(),
) -> None:
    """Write maps of what a text names in images.

    Each image gets its map and an overlay as PNG files. For photo.jpg they are photo.map.png
    (grey, white where the model sees it) and photo.overlay.png, both in the image's size. Two
    images of one name get photo and photo-2.

    \b
    Example:
      dualwave predict runs/demo/model photo.jpg --text "the red three" --output maps
    """
    from dualwave.predict import predict_files

    for written in predict_files(checkpoint, images, text, output):
        typer.echo(f"wrote {written.map_file} and {written.overlay_file}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code.

    Args:
        arguments: the words after ``dualwave``; by default the process's own.

    Raises:
        SystemExit: always; 0 done, 2 a user's mistake, 130 stopped by Ctrl-C.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="dualwave")
    except (ValueError, OSError) as error:
        sentence = " ".join(str(error).split()) or type(error).__name__
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(USER_MISTAKE)
