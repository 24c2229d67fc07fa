"""The shortest time that a device's measured rates allow."""

from dataclasses import dataclass

# Products on the matrix units for each product of that precision.
_EXECUTED = {"fp16": 1, "tf32": 1, "tf32x3": 3, "ieee": 1}
_UNIT = {"fp16": "fp16", "tf32": "tf32", "tf32x3": "tf32", "ieee": "ieee"}


@dataclass(frozen=True)
class Rates:
    """What a device was measured to do.

    Attributes:
        bytes_per_second: of a large copy; reads and writes both count.
        flops: floating-point operations a second of a large matrix product, by precision:
            ``"fp16"``, ``"tf32"`` and ``"ieee"``.
    """

    bytes_per_second: float
    flops: dict[str, float]


@dataclass(frozen=True)
class Roofline:
    """Both limits of a call in seconds."""

    traffic_seconds: float
    products_seconds: float

    @property
    def seconds(self) -> float:
        """The one that counts."""
        return max(self.traffic_seconds, self.products_seconds)

    @property
    def limit(self) -> str:
        """What it is limited by."""
        return "traffic" if self.traffic_seconds >= self.products_seconds else "products"


def roofline(traffic: int, multiply_adds: int, precision: str, rates: Rates) -> Roofline:
    """The limits of a call.

    Args:
        traffic: bytes that any implementation must read and write.
        multiply_adds: of the matrix products that ours executes, padding included.
        precision: of those products; one of ``"tf32x3"`` takes three of ``"tf32"``.
        rates: of the device.
    """
    operations = 2 * multiply_adds * _EXECUTED[precision]
    return Roofline(traffic / rates.bytes_per_second, operations / rates.flops[_UNIT[precision]])


def least_traffic(numel: int, itemsize: int, with_backward: bool) -> int:
    """Bytes of x and y; with the backward pass also of x again, dy and dx."""
    return numel * itemsize * (5 if with_backward else 2)
