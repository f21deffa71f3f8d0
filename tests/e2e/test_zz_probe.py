from tests.e2e.test_mixed_turns import *
from tests.e2e.test_responses import respond, post, error_of, HOSTED, QUESTION, text_of
from tests.e2e.test_responses import WEATHER as FN, SEARCH as S
from tests.e2e.conftest import *
import copy

def test_A(proxy, model):
    model.script(S, text("Blue [1]."), Turn(calls=[("c","web_search",{"query":"sea"}),("b","weather",{})]), text("As [1] and [2]."))
    one = respond(proxy)
    two = respond(proxy, "And?", previous_response_id=one["id"], store=False, tools=[FN])
    fc = next(i for i in two["output"] if i["type"]=="function_call")
    three = respond(proxy, [{"role":"user","content":"And?"}, *two["output"], {"type":"function_call_output","call_id":fc["call_id"],"output":"Rain"}], previous_response_id=one["id"], tools=[FN], store=False)
    print(last_read(model)); print(text_of(three))
    assert text_of(three).count("](")==2

def test_J(proxy, model):
    model.script(Turn(calls=[SEARCH, WEATHER]), text("Ok [1]."))
    one = respond(proxy, tools=[FN])
    two = respond(proxy, "Never mind", tools=[FN], previous_response_id=one["id"])
    print(last_read(model)); print(text_of(two))
    assert last_read(model) == [f"user {QUESTION}", "assistant - a=web_search", "tool a sky.md", "user Never mind"]

@pytest.mark.parametrize("style", ["link","number","openai","none"])
@pytest.mark.parametrize("stream", [True, False])
def test_U(config, model, style, stream):
    with Groundwire({**config, "citations": {"footer": True, "style": style}}) as proxy:
        model.script(Turn(calls=[SEARCH]), Turn(text=["Blue [1]."], calls=[WEATHER]), text("Yes [1]."), text("Third [1]."))
        seen = ask(proxy, [ASKED], stream=stream)
        print(repr(seen.message["content"]))
        done = ask(proxy, [ASKED, seen.message, *ran(seen)], stream=stream)
        print(repr(done.message["content"]), last_read(model))
        assert last_read(model) == [USER, "assistant - a=web_search", RESULTS["a"], "assistant Blue [1]. b=weather", RESULTS["b"]]
        third = ask(proxy, [ASKED, seen.message, *ran(seen), done.message, {"role":"user","content":"x"}], stream=stream)
        print(repr(third.message["content"]), last_read(model))
        r = None
        model.script(Turn(calls=[SEARCH]), Turn(text=["Blue [1]."], calls=[("b","weather",{})]), text("Yes [1]."), text("Third [1]."))
        one = respond(proxy, tools=[FN], stream=stream)
        print("R", repr(text_of(one)), [i for i in one["output"] if i["type"]=="message"])
        fc = next(i for i in one["output"] if i["type"]=="function_call")
        out={"type":"function_call_output","call_id":fc["call_id"],"output":"Rain"}
        two = respond(proxy, [{"role":"user","content":QUESTION}, *one["output"], out], tools=[FN], stream=stream)
        print("R2", repr(text_of(two)), last_read(model))
        one = respond(proxy, [{"role":"user","content":QUESTION}, *one["output"], out, *two["output"], {"role":"user","content":"y"}], tools=[FN], stream=stream, store=False)
        print("R3", repr(text_of(one)), last_read(model))

def test_D(config, model):
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams":[{**given, "tool_calls":"none"}]}) as proxy:
        model.script(text("Blue [1]."), text("More [1] [2] [3] [4]."))
        one = respond(proxy, "why sky sea tea green blue salty", include=["web_search_call.action.sources"])
        print(text_of(one), [i.get("action") for i in one["output"]])
        two = respond(proxy, "why is green tea brewed at 80?", previous_response_id=one["id"])
        print(text_of(two)); print(model.requests[-1]["messages"])
        assert 0
def test_C(proxy, model):
    model.script(text("x"))
    respond(proxy, tools=[FN, HOSTED], tool_choice={"type":"allowed_tools","mode":"required","tools":[HOSTED]})
    print(model.requests[-1]["tool_choice"])
def test_B(config, model):
    (given,) = config["upstreams"]
    with ModelServer() as other:
        other.script(text("from other"))
        model.script(Turn(status=500, body=b'{"error":{"message":"no"}}'))
        ups=[{**given,"fallback":["other"]}, {"name":"other","base_url":other.url,"models":["zzz"],"mode":"off"}]
        with Groundwire({**config, "upstreams":ups}) as proxy:
            a = ask(proxy,[ASKED]) if 0 else None
            r = httpx.post(f"{proxy.url}/chat/completions", json={"model":"m","messages":[ASKED]})
            print("chat", r.status_code, r.text[:200], len(other.requests))
            r = post(proxy)
            print("resp", r.status_code, r.text[:200], other.requests)
            assert 0
