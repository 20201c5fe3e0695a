// The memory of a user: what was said beside what is believed from it, when facts were valid, and what disagrees.
import { lazy, Suspense } from "react";
import { useSearchParams } from "wouter";

import { SubNavigation } from "../components/SubNavigation";
import { Conversation } from "./memory/Conversation";
import "./memory/memory.css";

const Timeline = lazy(() => import("./memory/Timeline"));
const Contradictions = lazy(() => import("./memory/Contradictions"));

export default function Memory() {
  const [search] = useSearchParams();
  const part = search.get("part");
  return (
    <>
      <h1>Memory</h1>
      <SubNavigation />
      <Suspense fallback={<p role="status">Loading …</p>}>
        {part === "timeline" ? <Timeline /> : part === "contradictions" ? <Contradictions /> : <Conversation />}
      </Suspense>
    </>
  );
}
