// The command palette: screens, predicates, constants, rule sets and goals, found by their names.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useLocation, useSearchParams } from "wouter";

import { linkTo } from "../address";
import { dataOf } from "../api/client";
import { useConstants, useHasAccess, usePredicates } from "../api/queries";
import { useConnection } from "../connection";
import { useGoals } from "../goals";
import { SCREENS } from "../screens";
import { Dialog } from "./Dialog";
import { Picker, type Option } from "./Picker";

interface Target extends Option {
  screen: string;
  parameters?: Record<string, string>;
}

export default function Palette({ onClose }: { onClose: () => void }) {
  const { connection, client } = useConnection();
  const [, navigate] = useLocation();
  const [search] = useSearchParams();
  const [text, setText] = useState("");
  const hasAccess = useHasAccess();
  const predicates = usePredicates();
  const constants = useConstants(hasAccess);
  const { recent, saved } = useGoals();
  const sets = useQuery({
    queryKey: ["rulesets", connection, "names"],
    enabled: hasAccess && connection.view === null,
    queryFn: async ({ signal }) => (await dataOf(client.GET("/rulesets", { params: {} as never, signal }))) as unknown as { ruleSets?: { name: string }[] } | { name: string }[],
    retry: false,
  });
  const targets = useMemo(() => {
    const names = Array.isArray(sets.data) ? sets.data : (sets.data?.ruleSets ?? []);
    const typed = text.trim();
    const list: Target[] = [
      ...SCREENS.flatMap(({ title, parts }) => parts.map((part) => ({ id: `screen ${part.screen} ${part.title}`, label: part.title, hint: part.title === title ? undefined : title, group: "Screens", screen: part.screen, ...(part.parameters === undefined ? {} : { parameters: part.parameters }) }))),
      ...saved.map((goal) => ({ id: `saved ${goal}`, label: goal, hint: "saved", group: "Goals", screen: "playground", parameters: { goal } })),
      ...recent.filter((goal) => !saved.includes(goal)).map((goal) => ({ id: `recent ${goal}`, label: goal, hint: "recent", group: "Goals", screen: "playground", parameters: { goal } })),
      ...predicates.map(({ predicate, arity, factCount, hasRules }) => ({ id: `predicate ${predicate}/${arity}`, label: `${predicate}/${arity}`, hint: factCount === 0 && hasRules ? "rules" : `${factCount.toLocaleString("en")} ${factCount === 1 ? "fact" : "facts"}`, group: "Predicates", screen: "facts", parameters: { predicate: `${predicate}/${arity}` } })),
      ...names.map(({ name }) => ({ id: `set ${name}`, label: name, hint: "rule set", group: "Rule sets", screen: "rulesets", parameters: { set: name } })),
      ...constants.map((constant) => ({ id: `constant ${constant}`, label: constant, group: "Constants", screen: "graph", parameters: { constant } })),
    ];
    if (typed !== "") {
      if (/[(?]/.test(typed)) list.push({ id: "run", label: `Run ${typed}`, group: "As typed", always: true, screen: "playground", parameters: { goal: typed } });
      list.push({ id: "ask", label: `Search the memory for “${typed}”`, group: "As typed", always: true, screen: "window", parameters: { query: typed } });
      list.push({ id: "around", label: `Facts around “${typed}”`, group: "As typed", always: true, screen: "graph", parameters: { constant: typed } });
    }
    return list;
  }, [sets.data, text, saved, recent, predicates, constants]);
  return (
    <Dialog title="Go to" onClose={onClose}>
      <Picker
        label="Screens, predicates, constants, rule sets and goals"
        options={targets}
        placeholder="Type a name, a goal or a question"
        onType={setText}
        onPick={(id) => {
          const target = targets.find((each) => each.id === id);
          if (target === undefined) return;
          onClose();
          navigate(linkTo(target.screen, search, target.parameters));
        }}
      />
    </Dialog>
  );
}
