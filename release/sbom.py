"""The contents of an archive as a CycloneDX document, made with the CycloneDX project's library.

Names, versions and licences come from the packages themselves, hashes from the lock; what is linked
into a package's modules stands inside its own component. The document
says the same each time: its time is the commit's, its serial number follows from what it says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release import linked_parts
from release.licences import expression
from release.lock import Pin
from release.platforms import Platform
from release.source import Commit
from release.wheels import Package


def document(
    platform: Platform, version: str, commit: Commit, packages: Iterable[Package], pins: list[Pin]
) -> str:
    """The document of one archive, as JSON."""
    hashes = {pin.name: pin.hashes for pin in pins}
    root = Component(
        name="kubectl-nodelife",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="kubectl-nodelife",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    parts = [_component(package, hashes[package.name]) for package in packages]
    bom = Bom(components=parts)
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(commit.time, UTC)
    bom.register_dependency(root, parts)
    said = f"{commit.hash} {platform.name} {[part.bom_ref.value for part in parts]}"
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, said)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _component(package: Package, hashes: Iterable[str]) -> Component:
    purl = PackageURL("pypi", name=package.name, version=package.version)
    inside = [
        Component(
            name=part.name,
            version=part.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{purl}/{part.purl}",
            purl=PackageURL.from_string(part.purl),
            licenses=[LicenseFactory().make_from_string(part.licence)],
        )
        for part in linked_parts.parts(package)
    ]
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[LicenseFactory().make_from_string(expression(package))],
        components=inside,
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(str(purl)),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=value) for value in hashes],
            )
        ],
    )
