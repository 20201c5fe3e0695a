// Starts `kbcore lsp` for rule files, and again when the command changes.
const { commands, window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

/** @type {LanguageClient | undefined} */
let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("kbcore").get("command", ["kbcore", "lsp"]);
  client = new LanguageClient(
    "kbcore",
    "kbcore",
    { command, args },
    {
      documentSelector: [{ language: "kb" }],
      synchronize: { fileEvents: workspace.createFileSystemWatcher("**/*.kb") },
    },
  );
  try {
    await client.start();
  } catch (error) {
    const advice = "Install it with: pip install 'kbcore[lsp]', or set kbcore.command.";
    window.showErrorMessage(`${[command, ...args].join(" ")} does not start: ${error}. ${advice}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.dispose();
}

async function restart() {
  await stop();
  await start();
}

exports.activate = async (context) => {
  context.subscriptions.push(
    commands.registerCommand("kbcore.restart", restart),
    workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("kbcore.command")) return restart();
    }),
  );
  await start();
};

exports.deactivate = stop;
