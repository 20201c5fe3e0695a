import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";

import { ApiError } from "./api/client";
import { App } from "./app";
import { ConnectionProvider } from "./connection";
import "./styles.css";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < 2 && error instanceof ApiError && [0, 503].includes(error.status),
      refetchOnWindowFocus: false,
    },
  },
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
