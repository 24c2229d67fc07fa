"""Images and texts to the tensors a model takes; the tokenizer is trained on the captions."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer
from transformers import PreTrainedTokenizerFast, ProcessorMixin
from transformers.image_utils import PILImageResampling
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

PADDING, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


class DualStreamProcessor(ProcessorMixin):
    """One image processor and one tokenizer, saved beside the weights.

    Calling it with ``images=`` (PIL images or a list of them), ``text=`` (a string or a list) or
    both gives a dict with ``pixel_values`` (B, 3, image_size, image_size) float32 in [-1, 1] and
    ``input_ids`` and ``attention_mask`` (B, L) int64, texts padded on the right to the longest
    of the call. Pass ``return_tensors="pt"`` for tensors.
    """

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, **kwargs: Any):
        super().__init__(image_processor, tokenizer, **kwargs)

    def __call__(
        self, images: Any = None, text: Any = None, *, return_tensors: str = "pt", **kwargs: Any
    ) -> dict[str, Any]:
        """See the class. Further keyword arguments go to the tokenizer where there is text."""
        if images is None and text is None:
            raise ValueError("the processor needs images, text or both.")
        encoded: dict[str, Any] = {}
        if text is not None:
            encoded |= self.tokenizer(text, padding=True, return_tensors=return_tensors, **kwargs)
        if images is not None:
            encoded |= self.image_processor(images, return_tensors=return_tensors)
        return encoded

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], *, image_size: int = 64, largest_vocabulary: int = 30_000
    ) -> "DualStreamProcessor":
        """Train a tokenizer on captions and put an image processor beside it.

        Words are lower-cased and split at white space and punctuation; a word that the captions
        do not hold becomes ``[UNK]``.

        Args:
            captions: the training captions.
            image_size: side in pixels that every image is resized to (bilinear).
            largest_vocabulary: the most frequent words are kept up to this many tokens.

        Raises:
            ValueError: no caption holds a word.
        """
        tokenizer = Tokenizer(WordLevel(unk_token=UNKNOWN))
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        special_tokens = [PADDING, UNKNOWN, START, END]
        tokenizer.train_from_iterator(
            captions,
            WordLevelTrainer(
                vocab_size=largest_vocabulary, special_tokens=special_tokens, show_progress=False
            ),
        )
        if tokenizer.get_vocab_size() == len(special_tokens):
            raise ValueError("the captions hold no word to train a tokenizer on.")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{START} $A {END}",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in (START, END)],
        )
        return cls(
            image_processor=ViTImageProcessorPil(
                size={"height": image_size, "width": image_size},
                resample=PILImageResampling.BILINEAR,
                image_mean=[0.5] * 3,
                image_std=[0.5] * 3,
                do_convert_rgb=True,
            ),
            tokenizer=PreTrainedTokenizerFast(
                tokenizer_object=tokenizer,
                pad_token=PADDING,
                unk_token=UNKNOWN,
                cls_token=START,
                sep_token=END,
                padding_side="right",
                model_input_names=["input_ids", "attention_mask"],
            ),
        )
