"""Every name in our traces, in one place. Those of HTTP and of models are OpenTelemetry's, whose conventions for models
still change; what they have no word for begins with `groundwire.`. Plain texts, used by traces.py.
"""

from __future__ import annotations

# Operations: what `gen_ai.operation.name` says, and how names of spans begin.
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
RETRIEVAL = "retrieval"
FORWARDED = "forward"  # ours: a question to a model that has no name there
READ = "read"  # ours: a provider fetches a page

# Of models, tools and searches
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"  # the upstream, as the operator calls it
MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
FUNCTION = "function"
ARGUMENTS = "gen_ai.tool.call.arguments"
DATA_SOURCE = "gen_ai.data_source.id"  # the provider, as the operator calls it
QUERY = "gen_ai.retrieval.query.text"

# Of HTTP
METHOD = "http.request.method"
ROUTE = "http.route"
PATH = "url.path"
URL = "url.full"
STATUS = "http.response.status_code"
ERROR = "error.type"

# Of the process
SERVICE = "service.name"
VERSION = "service.version"

# Ours
REQUEST_ID = "groundwire.request_id"
KEY = "groundwire.key"
DIALECT = "groundwire.dialect"
SEARCH = "groundwire.search"
REASON = "groundwire.reason"
ROUNDS = "groundwire.rounds"
RETRIES = "groundwire.retries"
CITATIONS = "groundwire.citations"
COST = "groundwire.cost"
QUEUED = "groundwire.queued_seconds"
FIRST_CONTENT = "groundwire.first_content_seconds"
OUTCOME = "groundwire.outcome"
ESTIMATED = "groundwire.estimated_tokens"
CACHED = "groundwire.cached"
RESULTS = "groundwire.results"
SIZE = "groundwire.bytes"
