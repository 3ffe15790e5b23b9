"""Lint: paste or drop a config, see what is found beside its text, take the patch or the whole report."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.errors import BlendexError, Code
from service.dashboard import words
from service.dashboard.forms import Answer, Form, ask, multipart, read_form, refused
from service.dashboard.pages import PageRoute, clock, page
from service.house import House, HouseOf
from service.query import refuse_unknown

router = APIRouter(
    prefix="/lint", route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)]
)

# Of a longer text only the lines around findings are shown.
MOST_LINES = 600
AROUND = 3
UPSTREAM = ("main", "2.0.0a7")
LEVELS = ("fatal", "error", "warning", "note")


@router.get("")
def form(request: Request, house: HouseOf) -> Response:
    """Where a config is pasted or dropped."""
    return page(request, "lint.html", clock(house), form=Form(), error=None, report=None, upstreams=UPSTREAM)


def _config(form: Form) -> tuple[str, str, list[tuple[str, bytes]]]:
    """(name, text) of the config, and the other files: nested blends."""
    files = [(name.rpartition("/")[2], content) for name, content in form.files.get("files", [])]
    # What is sent back with the report in a form's own fields.
    number = 0
    while (name := form.fields.get(f"file{number}.name")) is not None:
        files.append((name, form.fields.get(f"file{number}.text", "").encode()))
        number += 1
    text = form.fields.get("text", "")
    if text.strip():
        return form.get("name") or "config.yaml", text, files
    if not files:
        raise BlendexError(Code.BAD_REQUEST, "there is no config.", next_step="Paste one, or choose its file.")
    name, content = files[0]
    return name, content.decode("utf-8", "replace").replace("\r\n", "\n"), files[1:]


async def _lint(request: Request, form: Form, output: str) -> tuple[Answer, str, str, list[tuple[str, bytes]]]:
    name, text, nested = _config(form)
    launcher = form.fields.get("launcher", "")
    fields = [("config", name, text.encode())]
    fields += [("blend", file, content) for file, content in nested]
    if launcher.strip():
        fields.append(("launcher", form.get("launcher_name") or "launch.sh", launcher.encode()))
    kind, body = multipart(fields)
    upstream = form.get("upstream") if form.get("upstream") in UPSTREAM else UPSTREAM[0]
    query = [("upstream", upstream), ("output", output)]
    query += [("base", form.get("base"))] if form.get("base") else []
    query += [(name, line) for name in ("var", "env") for line in form.lines(name)]
    return await ask(request, "/v1/lint", query=query, content=body, kind=kind), name, text, nested


def beside(text: str, findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a text with what is to be said of each; of a long text, those around what is said."""
    said: dict[int, list[dict[str, Any]]] = {}
    for item in findings:
        said.setdefault(item["line"] or 1, []).append(item)
    lines = text.splitlines()
    wanted = set(range(1, len(lines) + 1))
    if len(lines) > MOST_LINES:
        wanted = {near for line in said for near in range(line - AROUND, line + AROUND + 1)}
    shown: list[dict[str, Any]] = []
    last = 0
    for number in sorted(wanted):
        if not 1 <= number <= len(lines):
            continue
        line = lines[number - 1][:2_000]
        shown.append({"number": number, "text": line, "said": said.get(number, []), "gap": number - last > 1})
        last = number
    return shown


@router.post("")
async def lint(request: Request, house: HouseOf) -> Response:
    """What was found."""
    filled = await read_form(request)
    try:
        answer, name, text, nested = await _lint(request, filled, "json")
    except BlendexError as error:
        return await run_in_threadpool(_page, request, house, filled, error, None, 400)
    if answer.status >= 400:
        return await run_in_threadpool(_page, request, house, filled, refused(answer.value), None, answer.status)
    report = answer.value["reports"][0]
    own = [item for item in report["findings"] if item["file"] == report["file"]]
    elsewhere = [item for item in report["findings"] if item["file"] != report["file"]]
    diffs = {file: words.diff(diff.splitlines()) for file, diff in report["patch"]["diffs"].items()}
    values = {
        "report": report, "lines": beside(text, own), "elsewhere": elsewhere, "diffs": diffs, "name": name,
        "text": text, "nested": [(file, content.decode("utf-8", "replace")) for file, content in nested],
    }  # fmt: skip
    return await run_in_threadpool(_page, request, house, filled, None, values, 200)


def _page(
    request: Request, house: House, form: Form, error: BlendexError | None, values: dict[str, Any] | None, status: int
) -> Response:
    shown = values or {"report": None}
    return page(request, "lint.html", clock(house), status, form=form, error=error, upstreams=UPSTREAM, **shown)


@router.post("/report")
async def report(request: Request) -> Response:
    """The folder of the migration as one file: report, patched files, checklist, build command."""
    filled = await read_form(request)
    answer, _, _, _ = await _lint(request, filled, "zip")
    if answer.status >= 400:
        raise refused(answer.value)
    headers = {"Content-Disposition": 'attachment; filename="migration.zip"'}
    return Response(answer.body, media_type="application/zip", headers=headers)
