"""Which data to use, as it is written in a config file."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DataConfig(BaseModel):
    """Where rows come from and what their columns are called.

    `path` is one of
    - a folder that `datasets` wrote with `save_to_disk`;
    - a folder of images with a `metadata.csv` or `metadata.jsonl` (see `opening`);
    - a folder of parquet files;
    - a name that `datasets.load_dataset` takes, for a dataset on the Hugging Face hub.

    `level_column`, `id_column` and `scene_column` are optional: under their default names they may
    be absent from the data, and `null` turns them off. Rows without ids are numbered. Rows with the
    same value in `scene_column` show the same picture, which training then encodes once for all of
    their captions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(
        min_length=1, description="a dataset folder, a folder of images, or a name on the hub"
    )
    train_split: str = Field(default="train", description="the split to train on")
    test_split: str = Field(default="test", description="the split to report on")
    image_column: str = Field(default="image", description="images, or their file names")
    mask_column: str = Field(default="mask", description="masks, or their file names")
    caption_column: str = Field(default="caption", description="the text that names the object")
    level_column: str | None = Field(default="level", description="groups to report apart")
    id_column: str | None = Field(default="id", description="a name for each row, used once")
    scene_column: str | None = Field(
        default="scene", description="equal for rows that show the same picture"
    )
    on_bad_row: Literal["skip", "raise"] = Field(
        default="raise", description="leave rows out that can't be used, or stop"
    )
