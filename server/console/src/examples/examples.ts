// The examples of the first screen, each with a goal to begin with.
import access from "./access.kb?raw";
import family from "./family.kb?raw";
import memory from "./memory.kb?raw";

export interface Example {
  id: string;
  title: string;
  description: string;
  text: string;
  goal: string;
}

export const FAMILY: Example = {
  id: "family",
  title: "A family",
  description: "Parents, and rules for ancestors, siblings and cousins. The tour uses this example.",
  text: family,
  goal: "ancestor(ann, ?who)",
};

export const EXAMPLES: Example[] = [
  FAMILY,
  {
    id: "access",
    title: "Access control",
    description: "Groups in groups, rights on folders, and bans that win.",
    text: access,
    goal: "may(max, ?right, ?thing)",
  },
  {
    id: "memory",
    title: "An agent's memory",
    description: "What an agent knows of its user, with confidence, and what follows from it.",
    text: memory,
    goal: "can_suggest(?dish, kim)",
  },
];
