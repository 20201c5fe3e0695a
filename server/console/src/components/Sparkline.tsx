// A small chart of one metric over time. uPlot comes with this module, so it is loaded on demand.
import { useEffect, useRef } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";

interface Properties {
  label: string;
  /** Times in seconds, ascending, and a value for each; null where there is none. */
  times: number[];
  values: (number | null)[];
  format: (value: number) => string;
}

const HEIGHT_PX = 56;

export default function Sparkline({ label, times, values, format }: Properties) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const color = () => {
      // A canvas needs the colour of the current theme, not the expression of the token.
      const probe = element.appendChild(document.createElement("span"));
      probe.style.color = "var(--accent)";
      const resolved = getComputedStyle(probe).color;
      probe.remove();
      return resolved;
    };
    const chart = new UPlot(
      {
        width: Math.max(1, element.clientWidth),
        height: HEIGHT_PX,
        legend: { show: false },
        cursor: { show: false },
        axes: [{ show: false }, { show: false }],
        scales: { x: { time: true }, y: { range: (_, low, high) => rangeOf(low, high) } },
        series: [{}, { stroke: color, width: 2, points: { show: false } }],
        padding: [4, 2, 4, 2],
      },
      [[], []],
      element,
    );
    plot.current = chart;
    const sizes = new ResizeObserver(() => chart.setSize({ width: Math.max(1, element.clientWidth), height: HEIGHT_PX }));
    sizes.observe(element);
    const redraw = () => chart.redraw(false);
    const themes = new MutationObserver(redraw);
    themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => {
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", redraw);
      chart.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData([times, values]), [times, values]);
  const numbers = values.filter((value) => value !== null);
  const summary = numbers.length === 0 ? "no values yet" : `lowest ${format(Math.min(...numbers))}, highest ${format(Math.max(...numbers))}`;
  return <div className="sparkline" role="img" aria-label={`${label}: ${summary}`} ref={container} />;
}

/** Return a range that starts at 0, unless that would hide a small change of a large value. */
function rangeOf(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const start = high - low > 0 && low > 10 * (high - low) ? low - (high - low) : 0;
  return [start, high === start ? start + 1 : high];
}
