"""What EC2 sells and starts from: instance types with their vCPUs, and AMIs with their platform.

Sources: EC2 API Reference, DescribeInstanceTypes and DescribeImages; vCPUs from the pages of the instance types.
"""

from typing import Any

from local.market.caller import Caller
from local.market.errors import MarketError
from local.market.listing import ec2_page

VCPUS = {
    "m7i.large": 2,
    "p4d.24xlarge": 96,
    "p4de.24xlarge": 96,
    "p5.4xlarge": 16,
    "p5.48xlarge": 192,
    "p5e.48xlarge": 192,
    "p5en.48xlarge": 192,
    "p6-b200.48xlarge": 192,
    "p6-b300.48xlarge": 192,
    "trn1.32xlarge": 128,
    "trn2.3xlarge": 12,
    "trn2.48xlarge": 192,
}


class Catalogue:
    """Instance types and images; `platforms` has the images that are not for Linux, `gone` those that were deregistered."""

    def __init__(self) -> None:
        self.platforms: dict[str, str] = {}
        self.gone: set[str] = set()

    def operations(self) -> dict[str, Any]:
        return {"DescribeImages": self._images, "DescribeInstanceTypes": self._types}

    def _images(self, params: dict[str, Any], _caller: Caller) -> dict[str, Any]:
        wanted = params.get("ImageIds") or []
        for each in wanted:
            if each in self.gone:
                raise MarketError("InvalidAMIID.NotFound", f"The image id '[{each}]' does not exist")
        images = [
            {"ImageId": each, "State": "available", "PlatformDetails": self.platforms.get(each, "Linux/UNIX")}
            for each in wanted or self.platforms
        ]
        return {"Images": images}

    @staticmethod
    def _types(params: dict[str, Any], _caller: Caller) -> dict[str, Any]:
        wanted = params.get("InstanceTypes") or list(VCPUS)
        for each in wanted:
            if each not in VCPUS:
                raise MarketError(
                    "InvalidInstanceType", f"The following supplied instance types do not exist: [{each}]"
                )
        shown = [
            {
                "InstanceType": each,
                "SupportedUsageClasses": ["on-demand"] if each == "m7i.large" else ["capacity-block", "on-demand"],
                "VCpuInfo": {"DefaultVCpus": VCPUS[each]},
            }
            for each in wanted
        ]
        page, token = ec2_page(shown, params)
        answer: dict[str, Any] = {"InstanceTypes": page}
        return answer if token is None else {**answer, "NextToken": token}
