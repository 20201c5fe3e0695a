// The tour of the family example: five addresses, each with a state of a screen.

export interface Step {
  title: string;
  text: string;
  screen: string;
  parameters: Record<string, string>;
  /** A rule that the reader may add at this step. */
  rule?: string;
}

export const STEPS: Step[] = [
  {
    title: "A goal",
    text: "A goal is a pattern. The answers are the values of ?who for which the knowledge base can derive it: stored facts and conclusions of rules alike.",
    screen: "playground",
    parameters: { goal: "ancestor(ann, ?who)" },
  },
  {
    title: "Its proof",
    text: "Each answer has a proof: the rules that derive it, down to stored facts. Here it is drawn; “Outline” shows it as text.",
    screen: "playground",
    parameters: { goal: "ancestor(ann, eve)", tab: "proof", shape: "graph" },
  },
  {
    title: "Why a goal has no answer",
    text: "For a goal without answers, “Why not” shows the rules that come nearest and the condition each of them lacks.",
    screen: "playground",
    parameters: { goal: "cousin(cleo, eve)", tab: "whynot" },
  },
  {
    title: "A context window",
    text: "A context window is the text that a language model reads: the answers of goals and the facts they depend on, within a budget. Select an entry to see why it is here.",
    screen: "window",
    parameters: { goals: "cousin(cleo, ?who)", maxTokens: "120" },
  },
  {
    title: "What a rule changes",
    text: "A preview shows what a rule would change before it is stored. Add the rule, and the goal below gets answers.",
    screen: "playground",
    parameters: { goal: "relative(eve, ?who)" },
    rule: "relative(?x, ?y) :- ancestor(?z, ?x), ancestor(?z, ?y), ?x != ?y.",
  },
];
