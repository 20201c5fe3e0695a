// A table that renders only the rows in view, so that 10,000 rows scroll smoothly.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type CSSProperties, type KeyboardEvent, type ReactNode } from "react";

import { useDensity } from "../density";

interface Properties<Row> {
  label: string;
  columns: string[];
  /** Widths of the columns as CSS grid tracks; equal widths without it. */
  widths?: string;
  rows: readonly Row[];
  /** Lines of text in a row; 1 without it. */
  lines?: number;
  /** Return the contents of a row, an element for each column. */
  cells: (row: Row, index: number) => ReactNode[];
  /** Called when the selected row changes, by click or by arrow keys. */
  onSelect?: (index: number) => void;
  selected?: number | null;
  /** Called for Enter on the selected row. */
  onOpen?: (index: number) => void;
}

const ROW_HEIGHT_PX = 32;
const DENSE_ROW_HEIGHT_PX = 24;
const LINE_HEIGHT_PX = 18;

export function VirtualTable<Row>({ label, columns, widths, rows, lines = 1, cells, onSelect, selected = null, onOpen }: Properties<Row>) {
  const [isDense] = useDensity();
  const height = (isDense ? DENSE_ROW_HEIGHT_PX : ROW_HEIGHT_PX) + (lines - 1) * LINE_HEIGHT_PX;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  useEffect(() => {
    if (selected !== null && selected < rows.length) virtual.scrollToIndex(selected);
  }, [selected, rows.length, virtual]);
  const move = (event: KeyboardEvent) => {
    if (onSelect === undefined || rows.length === 0) return;
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / height) - 1);
    const at = selected ?? -1;
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 };
    const target = steps[event.key];
    if (target !== undefined) {
      event.preventDefault();
      onSelect(Math.min(rows.length - 1, Math.max(0, target)));
    } else if (event.key === "Enter" && selected !== null) {
      event.preventDefault();
      onOpen?.(selected);
    }
  };
  const template = { gridTemplateColumns: widths ?? `repeat(${columns.length}, minmax(7.5rem, 1fr))` };
  return (
    <div className={lines > 1 ? "table wrapping" : "table"} role="table" aria-label={label} aria-rowcount={rows.length + 1} style={{ "--lines": lines } as CSSProperties} ref={scroller} tabIndex={0} onKeyDown={move}>
      <div role="rowgroup" className="table-head">
        <div role="row" style={template} aria-rowindex={1}>
          {columns.map((column) => (
            <div role="columnheader" key={column}>{column}</div>
          ))}
        </div>
      </div>
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          if (row === undefined) return null;
          return (
            <div
              role="row"
              key={item.index}
              aria-rowindex={item.index + 2}
              className={item.index === selected ? "selected" : undefined}
              style={{ ...template, height: item.size, transform: `translateY(${item.start}px)` }}
              onClick={() => onSelect?.(item.index)}
              onDoubleClick={() => onOpen?.(item.index)}
            >
              {cells(row, item.index).map((cell, column) => (
                <div role="cell" key={column}>{cell}</div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
