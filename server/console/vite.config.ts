import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Names without a hash: the server puts the version into the addresses of the files, so browsers may
// keep them, and a change of one source file changes few compiled files.
export default defineConfig({
  plugins: [react()],
  base: "./",
  build: {
    outDir: "../kbserver/console",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
  server: {
    proxy: { "^/(?!console|src|node_modules|@)": process.env["KBCORE_URL"] ?? "http://127.0.0.1:9300" },
  },
});
