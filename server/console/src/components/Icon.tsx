// The icons of the console, drawn on a grid of 20 by 20. Each stands next to a text, so it has no name of its own.

const PATHS = {
  memory: "M4 4h12v9H9l-4 3v-3H4z M7 7.5h6 M7 10h4",
  playground: "M4 5l5 5-5 5 M10.5 15H16",
  facts: "M3.5 4.5h13v11h-13z M3.5 8.2h13 M8 8.2v7.3",
  rules: "M5 3.5h7l3 3v10H5z M7.5 9.5h5 M7.5 12.5h5",
  graph: "M5 14.5a2 2 0 1 0 0-.01 M12 5a2 2 0 1 0 0-.01 M13.5 15.5a2 2 0 1 0 0-.01 M8 13l4.8-6.3 M9 14.8l4.4.5 M14.2 7l1 6.4",
  scopes: "M6 4v12 M6 9.5c0 3 8 0 8-4 M4.3 4a1.7 1.7 0 1 0 3.4 0 1.7 1.7 0 1 0-3.4 0 M12.3 4a1.7 1.7 0 1 0 3.4 0 1.7 1.7 0 1 0-3.4 0",
  operations: "M2.5 10.5h3.5l2-6 4 11 2-5h3.5",
  examples: "M10 3l2 5 5 .3-4 3.2 1.4 5L10 13.6l-4.4 2.9L7 11.5 3 8.3 8 8z",
  search: "M8.5 14a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z M12.6 12.6L17 17",
  time: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14z M10 6v4.3l2.8 1.7",
  key: "M7 13a3.5 3.5 0 1 0 0-.01 M9.6 10.4L16 4 M13 7l2.2 2.2",
  view: "M2 10c3-5 13-5 16 0-3 5-13 5-16 0z M10 12.3a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6z",
  density: "M3.5 4h13 M3.5 7h13 M3.5 10h13 M3.5 13h13 M3.5 16h13",
  dark: "M16 12A7 7 0 0 1 8 4a6.5 6.5 0 1 0 8 8z",
  light: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z M10 2v1.5 M10 16.5V18 M2 10h1.5 M16.5 10H18 M4.3 4.3l1.1 1.1 M14.6 14.6l1.1 1.1 M4.3 15.7l1.1-1.1 M14.6 5.4l1.1-1.1",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return <svg className="icon" viewBox="0 0 20 20" aria-hidden="true"><path d={PATHS[name]} /></svg>;
}
