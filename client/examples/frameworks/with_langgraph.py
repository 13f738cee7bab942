"""LangGraph: a graph that plans, looks things up in two branches at once, and puts the findings together."""

import operator
import os
from typing import Annotated, TypedDict

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

CITIES = ("Paris", "Rome")


class State(TypedDict):
    """What the graph knows."""

    plan: str
    findings: Annotated[list[str], operator.add]
    answer: str


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"It is sunny in {city}."


def graph(model: ChatOpenAI) -> StateGraph:
    """Return the graph: plan, then both cities at once, then the answer."""
    able = model.bind_tools([weather], tool_choice={"type": "function", "function": {"name": "weather"}})

    def plan(_: State) -> dict:
        return {"plan": model.invoke([HumanMessage("Plan a trip to Italy or France in one sentence.")]).content}

    def look(city: str):
        def branch(state: State) -> dict:
            question = HumanMessage(f"{state['plan']}\nHow is the weather in {city}?")
            called = able.invoke([question])
            found = weather.invoke({"city": city})
            told = [ToolMessage(found, tool_call_id=call["id"]) for call in called.tool_calls]
            return {"findings": [model.invoke([question, called, *told]).content]}

        return branch

    def answer(state: State) -> dict:
        return {"answer": model.invoke([HumanMessage("\n".join(["Where shall we go?", *state["findings"]]))]).content}

    built = StateGraph(State)
    built.add_node("plan", plan)
    built.add_node("answer", answer)
    built.add_edge(START, "plan")
    for city in CITIES:
        built.add_node(city, look(city))
        built.add_edge("plan", city)
    built.add_edge(list(CITIES), "answer")
    built.add_edge("answer", END)
    return built


def main() -> None:
    """Run the graph."""
    model = ChatOpenAI(model=os.environ["AUTELLIX_MODEL"], max_tokens=40, temperature=0)
    end = graph(model).compile().invoke({"plan": "", "findings": [], "answer": ""})
    print("plan:", end["plan"])
    print("findings:", len(end["findings"]))
    print("answer:", end["answer"])


if __name__ == "__main__":
    main()
