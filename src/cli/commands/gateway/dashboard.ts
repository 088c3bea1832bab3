/** `holdfast dashboard`: a gateway whose pages its user opens by a link. */

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Command } from "commander";
import type { Gateway } from "../../../gateway/gateway.ts";
import { formatJsonLine, info, printLine } from "../../output.ts";
import type { Settings } from "../serve/settings.ts";
import { serveGateway } from "./gateway.ts";
import { openInBrowser } from "./open-link.ts";

/** Serves the pages until SIGTERM or SIGINT. @throws as serveGateway() */
export function dashboardCommand(command: Command): Promise<number> {
  return serveGateway(command, {
    dashboard: (settings) => ({ hasStartTokens: true, isReadOnly: settings.has("read-only") }),
    announce,
  });
}

function announce(gateway: Gateway, settings: Settings, storeName: string): void {
  const { address, runId } = gateway;
  if (settings.has("json")) return printLine(formatJsonLine({ http: address, runId, link: gateway.createLink() }));
  info(`the locks of ${storeName}, in a browser:`);
  const link = gateway.createLink();
  printLine(link);
  const isOneTime = link.includes("#");
  if (isOneTime) info("the link works once, within 60 s; press Enter for another one");
  // a link of its own: that on the screen stays valid for another browser
  if (settings.has("open")) openInBrowser(gateway.createLink());
  if (isOneTime && process.stdin.isTTY) printLinksOnEnter(gateway);
}

/** A background job that reads from its terminal would be stopped, so it reads in the foreground only. */
function printLinksOnEnter(gateway: Gateway): void {
  const { stdin } = process;
  const lines = createInterface({ input: stdin, terminal: false });
  lines.on("line", () => printLine(gateway.createLink()));
  const followForeground = (): void => {
    if (isInForeground()) lines.resume();
    else lines.pause();
    // it must not keep the process alive when the gateway has ended
    stdin.unref();
  };
  process.on("SIGCONT", followForeground);
  followForeground();
}

/** Is this process group the one to which the terminal belongs? True where it cannot be known. */
function isInForeground(): boolean {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8");
    const [, , group, , , terminalGroup] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return group === terminalGroup;
  } catch {
    return true;
  }
}
