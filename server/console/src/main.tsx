import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";

import { ApiError } from "./api/client";
import { App } from "./app";
import { ConnectionProvider } from "./connection";
import "./tokens.css";
import "./styles.css";
import "./frame.css";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < 2 && error instanceof ApiError && [0, 503].includes(error.status),
      refetchOnWindowFocus: false,
    },
  },
});

// After an update of the server the files of the old page are gone: the page is loaded again, at most once a minute.
addEventListener("vite:preloadError", (event) => {
  const last = Number(sessionStorage.getItem("kbcore.reloaded") ?? 0);
  if (Date.now() - last < 60_000) return;
  event.preventDefault();
  sessionStorage.setItem("kbcore.reloaded", String(Date.now()));
  location.reload();
});

// Screens are one level below the folder of the page, wherever the server is mounted.
const base = location.pathname.replace(/\/[^/]*$/, "");
const element = document.getElementById("console");
if (element === null) throw new Error("the page has no element #console");
createRoot(element).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Router base={base}>
        <ConnectionProvider>
          <App />
        </ConnectionProvider>
      </Router>
    </QueryClientProvider>
  </StrictMode>,
);
