// The drawing of a neighbourhood. cytoscape comes with this module, so it is loaded on demand.
import cytoscape, { type Core } from "cytoscape";
import { useEffect, useRef } from "react";

import type { DrawnEdge, DrawnNode } from "../neighbourhood";

interface Properties {
  nodes: DrawnNode[];
  edges: DrawnEdge[];
  expanded: ReadonlySet<string>;
  /** The CSS variable with the colour of a predicate. */
  colorOf: (predicate: string) => string;
  onToggle: (constant: string) => void;
}

// cytoscape adds an inline style element unless one with this id exists. The security policy of the
// page forbids inline styles; the rule of that element is in screens/graph.css.
const STYLE_ID = "__________cytoscape_stylesheet";

export default function GraphDrawing({ nodes, edges, expanded, colorOf, onToggle }: Properties) {
  const container = useRef<HTMLDivElement>(null);
  const toggle = useRef(onToggle);
  toggle.current = onToggle;
  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    if (document.getElementById(STYLE_ID) === null) {
      const placeholder = document.createElement("template");
      placeholder.id = STYLE_ID;
      document.head.append(placeholder);
    }
    const graph = cytoscape({
      container: element,
      elements: [
        ...nodes.map(({ id, label, constant, predicate }) => ({
          data: { id, label, constant, predicate, kind: constant === null ? "fact" : "constant", expanded: constant !== null && expanded.has(constant) ? "yes" : "no" },
        })),
        ...edges.map(({ id, source, target, predicate }) => ({ data: { id, source, target, predicate } })),
      ],
      layout: { name: "cose", animate: false, randomize: true, padding: 24 },
      minZoom: 0.2,
      maxZoom: 3,
    });
    const paint = () => colour(graph, element, colorOf);
    paint();
    graph.on("tap", "node", (event) => {
      const constant: unknown = event.target.data("constant");
      if (typeof constant === "string") toggle.current(constant);
    });
    const themes = new MutationObserver(paint);
    themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", paint);
    return () => {
      themes.disconnect();
      scheme.removeEventListener("change", paint);
      graph.destroy();
    };
  }, [nodes, edges, expanded, colorOf]);
  return <div className="graph-drawing" role="img" aria-label={`Drawing of ${nodes.length} nodes and ${edges.length} edges; the list has the same facts`}><div ref={container} /></div>;
}

/** Give the drawing the colours of the current theme. */
function colour(graph: Core, element: Element, colorOf: (predicate: string) => string): void {
  const styles = getComputedStyle(element);
  const variable = (name: string) => styles.getPropertyValue(name).trim();
  const ofPredicate = (item: { data: (name: string) => unknown }) => variable(colorOf(String(item.data("predicate"))));
  graph.style([
    { selector: "node", style: { label: "data(label)", color: variable("--text"), "background-color": variable("--soft"), "font-size": 12, "text-wrap": "ellipsis", "text-max-width": "120px", "text-valign": "bottom", "text-margin-y": 3, width: 18, height: 18 } },
    { selector: "node[expanded = 'yes']", style: { "background-color": variable("--accent"), width: 24, height: 24 } },
    { selector: "node[kind = 'fact']", style: { shape: "diamond", "background-color": ofPredicate as never } },
    { selector: "edge", style: { width: 2, "line-color": ofPredicate as never, "target-arrow-color": ofPredicate as never, "target-arrow-shape": "triangle", "curve-style": "bezier" } },
  ]);
}
