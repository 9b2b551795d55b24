"""Puts ingest together: settings, adapters, workers, service. The only composition root."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.ingest import questions
from forebay.ingest.domain import placing, registering, tagging, version_commands, waiving
from forebay.ingest.domain.decide import CHECK, CONVERT, DERIVE, LEASE, RELEASE, REMOVE, VALIDATE, decide
from forebay.ingest.domain.documents import DOCUMENTS
from forebay.ingest.domain.evolve import FOLD_VERSION, READS, evolve
from forebay.ingest.settings import IngestSettings
from forebay.ingest.sharing import shared
from forebay.runtime.app import run_service
from forebay.runtime.machine import Service
from forebay.runtime.settings import load_settings
from forebay.runtime.work import Worker


def definition() -> Service:
    """The service in pure functions; `forebay rebuild` uses it without I/O."""
    return Service(
        part=Part.INGEST,
        fold_version=FOLD_VERSION,
        documents=DOCUMENTS,
        reads=READS,
        evolve=evolve,
        decide=decide,
        commands={
            "tag": tagging.tag,
            "move-tag": tagging.move_tag,
            "untag": tagging.untag,
            "waive": waiving.waive,
            "revoke-waiver": waiving.revoke_waiver,
            "register": registering.register,
            "place": placing.place_version,
            **version_commands.COMMANDS,
        },
        questions=questions.QUESTIONS,
    )


def workers(settings: IngestSettings) -> dict[str, Worker]:
    """What does the long work."""
    # they import pyarrow, PyAV and Lance, which takes a second: `definition` and the CLI do without
    from forebay.ingest.adapters.arrow_memory import use_system_memory  # noqa: PLC0415
    from forebay.ingest.adapters.episode_records import EpisodeRecords  # noqa: PLC0415
    from forebay.ingest.adapters.landing_folder import LandingFolders  # noqa: PLC0415
    from forebay.ingest.adapters.report_files import ReportFiles  # noqa: PLC0415
    from forebay.ingest.workers import leases  # noqa: PLC0415
    from forebay.ingest.workers.convert import Converter  # noqa: PLC0415
    from forebay.ingest.workers.derive import DerivedWriter  # noqa: PLC0415
    from forebay.ingest.workers.placing import Placer  # noqa: PLC0415
    from forebay.ingest.workers.register import Registrar  # noqa: PLC0415
    from forebay.ingest.workers.validate import Validator  # noqa: PLC0415

    use_system_memory()
    pool, registered = settings.pool_folder, settings.home.absolute() / "registered"
    landings, reports, records = LandingFolders(pool), ReportFiles(pool), EpisodeRecords(pool)
    return {
        VALIDATE: Validator(landings, reports, settings.policy_folder),
        CONVERT: Converter(landings, pool / "datasets", records, settings.policy_folder),
        registering.REGISTER: Registrar(reports, registered, settings.policy_folder, records),
        DERIVE: DerivedWriter(landings, pool / "datasets", records),
        placing.PLACE: Placer(settings.home.absolute()),
        LEASE: leases.lease,
        RELEASE: leases.release,
        CHECK: leases.check,
        REMOVE: leases.Remover(pool / "datasets", registered, records),
    }


async def run() -> None:
    """Run until told to stop."""
    settings = load_settings(IngestSettings)
    await run_service(definition(), settings, workers(settings), **shared(settings.validators))
