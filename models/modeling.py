"""The dual-stream model: two towers, fusion blocks between them, heads on top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from dualwave.models.configuration import DualStreamConfig
from dualwave.models.fusion import SpectralFusionBlock
from dualwave.models.heads import ContrastiveHead, SaliencyHead
from dualwave.models.mixers import SpectralMixer
from dualwave.models.processing import DualStreamProcessor
from dualwave.models.saliency import ImageLike, saliency_maps
from dualwave.models.towers import TextTower, VisionTower, masked_mean


@dataclass
class DualStreamOutput(ModelOutput):
    """What a `DualStreamModel` returns.

    Attributes:
        image_embeds: (B, embedding_size), unit norm, of the image alone.
        text_embeds: (B, embedding_size), unit norm, of the text alone.
        logit_scale: (), the factor on cosines in the contrastive loss; at most 100.
        saliency_logits: (B, H, W), of each image given its text; a sigmoid makes the map. None
            without saliency.
    """

    image_embeds: Tensor | None = None
    text_embeds: Tensor | None = None
    logit_scale: Tensor | None = None
    saliency_logits: Tensor | None = None


class DualStreamModel(PreTrainedModel):
    """A vision tower and a text tower that meet in fusion blocks; contrastive and saliency heads.

    The contrastive embeddings come from the towers alone, so that images and texts can be
    compared without pairing them; the saliency map comes from the fused vision stream.
    """

    config: DualStreamConfig
    config_class = DualStreamConfig
    main_input_name = "pixel_values"
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: DualStreamConfig):
        super().__init__(config)
        # Set by `dualwave.load`; not part of the weights.
        self.processor: DualStreamProcessor | None = None
        self.vision_tower = VisionTower(config)
        self.text_tower = TextTower(config)
        self.fusion_blocks = nn.ModuleList(
            SpectralFusionBlock(config, mixer, updates_text=position < len(config.fusion_mixers))
            for position, mixer in enumerate(config.fusion_mixers, start=1)
        )
        self.contrastive_head = ContrastiveHead(config)
        self.saliency_head = SaliencyHead(config)
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, with every weight copied out of the mapped file.

        A weight in a mapped file lies at whatever address the file gives it, and the CPU's matrix
        products round differently at unaligned addresses: without the copy a reloaded model's
        outputs would differ from the saved one's in the last bits.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for weight in (*model.parameters(), *model.buffers()):
            weight.data = weight.data.clone()
        return loaded

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> Any:
        """As in transformers, with the processor beside the weights where the model has one."""
        saved = super().save_pretrained(save_directory, **kwargs)
        if self.processor is not None:
            self.processor.save_pretrained(save_directory)
        return saved

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Conv2d):
            fan_in = module.weight[0].numel()
            init.normal_(module.weight, std=1 / math.sqrt(fan_in))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, SpectralMixer):
            init.constant_(module.log_temperature, -3.0)
            init.constant_(module.gain, module.grid[1] // 2 + 1)
            init.ones_(module.mean_gain)
        elif isinstance(module, SpectralFusionBlock):
            # The filter starts out deaf to the text and learns what to listen to.
            init.zeros_(module.bias_from_text.weight)
            init.zeros_(module.bias_from_text.bias)
        elif isinstance(module, VisionTower):
            init.normal_(module.positions, std=0.1)
        elif isinstance(module, TextTower):
            init.normal_(module.positions, std=0.1)
            init.normal_(module.words.weight, std=1.0)
        elif isinstance(module, ContrastiveHead):
            init.constant_(module.log_scale, self.config.initial_logit_scale)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        image_index: Tensor | None = None,
        region_masks: Tensor | None = None,
        with_saliency: bool = True,
    ) -> DualStreamOutput:
        """Encode pairs of image and text.

        Args:
            pixel_values: (B, num_channels, image_size, image_size), normalised.
            input_ids: (B, L) int64, L at most max_text_length.
            attention_mask: (B, L), not zero where a token is real; at least one a row.
            image_index: (B,) int64, the image in `pixel_values` that each text goes with, so that
                an image with several texts is encoded once; row by row if None.
            region_masks: (B, image_size, image_size), not zero on the region that the text is
                about. Given, the image embedding is that of the region instead of the whole
                image; a row without any region keeps the whole image. The map does not see it.
            with_saliency: False leaves out the fusion blocks and the map: the towers alone.

        Returns:
            `DualStreamOutput`.

        Raises:
            ValueError: an image size or text length that the model was not built for.
        """
        self._check_inputs(pixel_values, input_ids)
        text_mask = attention_mask.bool()
        vision, pixel_features = self.vision_tower(pixel_values)
        if image_index is not None:
            vision = vision[image_index]
        text = self.text_tower(input_ids, text_mask)
        image_embeds, text_embeds = self.contrastive_head(
            self._image_mean(vision, region_masks), masked_mean(text, text_mask)
        )
        saliency_logits = None
        if with_saliency:
            if image_index is not None:
                pixel_features = pixel_features[image_index]
            for block in self.fusion_blocks:
                vision, text = block(vision, text, text_mask)
            saliency_logits = self.saliency_head(vision, pixel_features)
        return DualStreamOutput(
            image_embeds=image_embeds,
            text_embeds=text_embeds,
            logit_scale=self.contrastive_head.log_scale.clamp(max=math.log(100)).exp(),
            saliency_logits=saliency_logits,
        )

    def _image_mean(self, vision: Tensor, region_masks: Tensor | None) -> Tensor:
        """(B, N, C) to (B, C): over all tokens, or weighted by the region's share of each."""
        if region_masks is None:
            return vision.mean(dim=1)
        shares = F.avg_pool2d(region_masks[:, None].to(vision.dtype), self.config.patch_size)
        shares = rearrange(shares, "b 1 h w -> b (h w) 1")
        empty = shares.sum(dim=1, keepdim=True) == 0
        shares = torch.where(empty, torch.ones_like(shares), shares)
        return (vision * shares).sum(dim=1) / shares.sum(dim=1)

    def saliency(
        self, image: ImageLike | list[ImageLike] | tuple[ImageLike, ...], text: str | Sequence[str]
    ) -> np.ndarray | list[np.ndarray]:
        """Where the picture shows what the text names.

        Args:
            image: one image or a list: a PIL image, a path, an array (H, W, 3) or (H, W), or a
                tensor (3, H, W); arrays and tensors as uint8 or floats in [0, 1].
            text: one text or a list. A single image or text is paired with every entry of the
                other's list.

        Returns:
            A float32 map (H, W) in [0, 1] in the image's own size; a list of them if either
            argument is a list. Empty lists give an empty list.

        Raises:
            ValueError: lists of different lengths, or something that is not an image.
            FileNotFoundError: a path that does not exist.
        """
        images: list[ImageLike] = list(image) if isinstance(image, list | tuple) else [image]
        texts = [text] if isinstance(text, str) else list(text)
        one_image, one_text = not isinstance(image, list | tuple), isinstance(text, str)
        if one_image and not one_text:
            images = images * len(texts)
        elif one_text and not one_image:
            texts = texts * len(images)
        if len(images) != len(texts):
            raise ValueError(
                f"{len(images)} images and {len(texts)} texts cannot be paired: "
                "give lists of one length, or a single image or text."
            )
        maps = saliency_maps(self, images, texts)
        return maps[0] if one_image and one_text else maps

    def _check_inputs(self, pixel_values: Tensor, input_ids: Tensor) -> None:
        config = self.config
        wanted = (config.num_channels, config.image_size, config.image_size)
        if pixel_values.ndim != 4 or tuple(pixel_values.shape[1:]) != wanted:
            raise ValueError(
                f"pixel_values must be (B, {', '.join(map(str, wanted))}) for this model, "
                f"not {tuple(pixel_values.shape)}: resize with its processor."
            )
        if input_ids.shape[1] > config.max_text_length:
            raise ValueError(
                f"a text of {input_ids.shape[1]} tokens is longer than this model's "
                f"max_text_length {config.max_text_length}: shorten it, or build a model with more."
            )
