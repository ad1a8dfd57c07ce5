"""What the protocol's conformance suite expects a server to have: its tools, prompts and resources, added to ours."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, TypeVar

from mcp.server import MCPServer, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    ClientCapabilities,
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    MissingRequiredClientCapabilityErrorData,
    PromptReference,
    ResourceTemplateReference,
    SamplingCapability,
    SamplingMessage,
    SetLevelRequestParams,
    TextContent,
    TextResourceContents,
)

PICTURE = b"\x89PNG\r\n\x1a\n"
PICTURE_TEXT = base64.b64encode(PICTURE).decode()
SOUND_TEXT = base64.b64encode(b"RIFF\x00\x00\x00\x00WAVE").decode()
PAUSE_S = 0.05
_Answer = TypeVar("_Answer")


def add_fixtures(server: MCPServer[Any]) -> None:
    """Add all of them to a server."""
    _add_contents(server)
    _add_talk(server)
    for tool in _MULTI_ROUND_TOOLS:
        server.add_tool(tool)
    _add_stateless_tools(server)
    _add_resources(server)
    _add_prompts(server)
    _add_requests(server)


def elicitation(message: str, **properties: dict[str, Any]) -> ElicitRequest:
    """A form whose fields are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str, most_tokens: int) -> CreateMessageRequest:
    """A question to the model of the client."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=most_tokens))


def _ask(state: str | None = None, /, **requests: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests or None, request_state=state)


def _answer(ctx: Context[Any, Any], name: str, kind: type[_Answer]) -> _Answer | None:
    found = (ctx.input_responses or {}).get(name)
    return found if isinstance(found, kind) else None


def _field(ctx: Context[Any, Any], name: str, field: str) -> object | None:
    """What a user has filled in; None asks again."""
    found = _answer(ctx, name, ElicitResult)
    return None if found is None or found.action != "accept" else (found.content or {}).get(field)


def _add_contents(server: MCPServer[Any]) -> None:
    picture = ImageContent(type="image", data=PICTURE_TEXT, mime_type="image/png")

    @server.tool()
    def test_simple_text() -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[ImageContent]:
        """Return a picture."""
        return [picture]

    @server.tool()
    def test_audio_content() -> list[AudioContent]:
        """Return a sound."""
        return [AudioContent(type="audio", data=SOUND_TEXT, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[EmbeddedResource]:
        """Return a resource."""
        return [_embedded("test://embedded-resource", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Return a text, a picture and a resource."""
        document = json.dumps({"test": "data", "value": 123})
        return [
            TextContent(type="text", text="Multiple content types test:"),
            picture,
            _embedded("test://mixed-content-resource", document, mime_type="application/json"),
        ]

    @server.tool()
    def test_error_handling() -> str:
        """Fail."""
        raise RuntimeError("This tool intentionally returns an error for testing")


def _embedded(uri: str, text: str, *, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _add_talk(server: MCPServer[Any]) -> None:
    """What the revisions with a handshake let a server send and ask while a call is under way."""

    @server.tool()
    async def test_tool_with_logging(ctx: Context[Any, Any]) -> str:
        """Write to the client's log."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.log("info", text)
            await asyncio.sleep(PAUSE_S)
        return "logged"

    @server.tool()
    async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
        """Report progress."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await asyncio.sleep(PAUSE_S)
        return "done"

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context[Any, Any]) -> str:
        """Ask the client's model."""
        asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        found = await ctx.session.create_message([asked], max_tokens=100, related_request_id=ctx.request_id)
        return f"LLM response: {found.content.model_dump_json()}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context[Any, Any]) -> str:
        """Ask the user."""
        text = {"type": "string"}
        return await _elicited(ctx, elicitation(message, username=text, email=text))

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context[Any, Any]) -> str:
        """Ask with defaults of all types."""
        form = elicitation(
            "Who are you?",
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
        return await _elicited(ctx, form)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
        """Ask with choices of all forms."""
        titled = [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]
        form = elicitation(
            "What do you choose?",
            untitledSingle={"type": "string", "enum": ["a", "b"]},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]},
            untitledMulti={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        )
        return await _elicited(ctx, form)


async def _elicited(ctx: Context[Any, Any], form: ElicitRequest) -> str:
    assert isinstance(form.params, ElicitRequestFormParams)
    asked = form.params
    found = await ctx.session.elicit_form(asked.message, asked.requested_schema, related_request_id=ctx.request_id)
    return f"Elicitation completed: action={found.action}, content={json.dumps(found.content)}"


# What 2026-07-28 has in place of requests of the server: a result that asks, and a call that is repeated with answers.
_ASK_NAME = elicitation("What is your name?", name={"type": "string"})
_ASK_OK = elicitation("Please confirm", ok={"type": "boolean"})


async def test_input_required_result_elicitation(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask for a name."""
    name = _field(ctx, "user_name", "name")
    return f"Hello, {name}!" if isinstance(name, str) else _ask(user_name=_ASK_NAME)


async def test_input_required_result_sampling(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask the client's model."""
    found = _answer(ctx, "capital_question", CreateMessageResult)
    if found is None:
        return _ask(capital_question=sampling("What is the capital of France?", 100))
    return found.content.model_dump_json()


async def test_input_required_result_list_roots(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask for the client's folders."""
    found = _answer(ctx, "client_roots", ListRootsResult)
    return _ask(client_roots=ListRootsRequest()) if found is None else ", ".join(str(r.uri) for r in found.roots)


async def test_input_required_result_request_state(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask, with a state that comes back."""
    if ctx.request_state == "asked" and _field(ctx, "confirm", "ok") is not None:
        return "state-ok"
    return _ask("asked", confirm=_ASK_OK)


async def test_input_required_result_tampered_state(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask, with a state that must not be changed."""
    return "state-ok" if ctx.request_state == "asked" else _ask("asked", confirm=_ASK_OK)


async def test_input_required_result_multiple_inputs(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask for three things at once."""
    name = _field(ctx, "user_name", "name")
    greeting = _answer(ctx, "greeting", CreateMessageResult)
    roots = _answer(ctx, "client_roots", ListRootsResult)
    if name is None or greeting is None or roots is None:
        greet = sampling("Generate a greeting", 50)
        return _ask("asked", user_name=_ASK_NAME, greeting=greet, client_roots=ListRootsRequest())
    return f"{name}, {len(roots.roots)} folders"


async def test_input_required_result_multi_round(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask twice."""
    name, color = _field(ctx, "step1", "name"), _field(ctx, "step2", "color")
    if color is not None and ctx.request_state:
        return f"{ctx.request_state} likes {color}"
    if name is None:
        return _ask("nobody", step1=elicitation("Step 1: What is your name?", name={"type": "string"}))
    return _ask(str(name), step2=elicitation("Step 2: What is your favorite color?", color={"type": "string"}))


async def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Ask only what the client can answer."""
    known = ctx.client_capabilities or ClientCapabilities()
    asked: dict[str, InputRequest] = {}
    if known.elicitation is not None:
        asked["user_name"] = _ASK_NAME
    if known.sampling is not None:
        asked["greeting"] = sampling("Generate a greeting", 50)
    return _ask(**asked) if asked else "nothing to ask"


_MULTI_ROUND_TOOLS = (
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
)


def _add_stateless_tools(server: MCPServer[Any]) -> None:
    @server.tool()
    async def test_missing_capability(ctx: Context[Any, Any]) -> str:
        """Need a capability of the client."""
        if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
            needed = ClientCapabilities(sampling=SamplingCapability())
            data = MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
            told = data.model_dump(by_alias=True, mode="json", exclude_none=True)
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool asks the client's model", told)
        return "the client has a model"

    @server.tool()
    async def test_streaming_elicitation(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Report progress, then ask."""
        await ctx.report_progress(50, 100)
        name = _field(ctx, "user_name", "name")
        return f"Hello, {name}!" if isinstance(name, str) else _ask(user_name=_ASK_NAME)

    @server.tool()
    async def test_logging_tool(ctx: Context[Any, Any]) -> str:
        """Write to the client's log, if it wants one."""
        await ctx.log("info", "a line")
        return "logged"

    @server.tool()
    async def test_trigger_tool_change(ctx: Context[Any, Any]) -> str:
        """Say that the tools have changed."""
        await ctx.notify_tools_changed()
        return "told"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context[Any, Any]) -> str:
        """Say that the prompts have changed."""
        await ctx.notify_prompts_changed()
        return "told"


def _add_resources(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return PICTURE

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        """A text that clients may watch."""
        return "Watched resource content"

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002  # the name is that of the template
        """A document with an id."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _add_prompts(server: MCPServer[Any]) -> None:
    @server.prompt()
    def test_simple_prompt() -> str:
        """A prompt without arguments."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803  # the suite's name
        """A prompt with a resource."""
        embedded = _embedded(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(embedded), UserMessage("Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with a picture."""
        picture = ImageContent(type="image", data=PICTURE_TEXT, mime_type="image/png")
        return [UserMessage(picture), UserMessage("Please analyze the image above.")]

    @server.prompt()
    async def test_input_required_result_prompt(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """A prompt that asks."""
        found = _field(ctx, "user_context", "context")
        asked = elicitation("What context should the prompt use?", context={"type": "string"})
        return f"Use this context: {found}" if isinstance(found, str) else _ask(user_context=asked)


def _add_requests(server: MCPServer[Any]) -> None:
    @server.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the package has no types here
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        del ref, context
        found = [word for word in ("paris", "park", "party") if word.startswith(argument.value)]
        return Completion(values=found, total=len(found), has_more=False)

    async def accept(ctx: ServerRequestContext[Any, Any], params: object) -> EmptyResult:
        del ctx, params
        return EmptyResult()

    protocol = server._lowlevel_server  # the package offers no public way to add it
    protocol.add_request_handler("logging/setLevel", SetLevelRequestParams, accept)
