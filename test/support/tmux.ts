/** A real tmux for tests: terminals of a given size, keys that are typed in them, and what they show. */

import { execFile, spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { promisify } from "node:util";
import { until } from "../../src/testing/until.ts";
import { canInstall, installPackages } from "./debian-packages.ts";

const TMUX_PROGRAM = "tmux";
/** What a test waits for appears much sooner, unless the machine is busy. */
const WITHIN_MS = 20_000;

const execute = promisify(execFile);

/** Why there is no tmux here and none can be had; null if there is. */
export function tmuxUnavailableReason(): string | null {
  if (isInstalled()) return null;
  return canInstall() ? null : `${TMUX_PROGRAM} is not installed, and only root on Debian or Ubuntu could install it`;
}

export function installTmux(): void {
  if (!isInstalled()) installPackages([TMUX_PROGRAM], "the tests of full screens");
}

function isInstalled(): boolean {
  return spawnSync(TMUX_PROGRAM, ["-V"], { stdio: "ignore" }).status === 0;
}

/** A terminal with a shell in it. */
export interface TmuxTerminal {
  /** Types text as it is. */
  type(text: string): Promise<void>;
  /** Presses keys by the names that tmux has for them: "Enter", "Escape", "C-z", "Down". */
  press(...keys: readonly string[]): Promise<void>;
  resize(columns: number, lines: number): Promise<void>;
  /** The lines that it shows, without spaces at their ends. `hasStyles`: with the sequences of colours. */
  capture(hasStyles?: boolean): Promise<readonly string[]>;
  /** What tmux knows of it, such as "#{cursor_flag}". */
  read(format: string): Promise<string>;
  /** Waits until what it shows fulfils the condition, and gives that. */
  shows(condition: RegExp | ((lines: readonly string[]) => boolean)): Promise<readonly string[]>;
}

export interface TmuxServer {
  /** Opens a terminal in which bash runs, with these variables only and PATH. */
  open(columns: number, lines: number, env: Readonly<Record<string, string>>): Promise<TmuxTerminal>;
  /** Ends all terminals. */
  close(): Promise<void>;
}

/** @param socket the path of its socket, in a folder of the test */
export function startTmux(socket: string): TmuxServer {
  const tmux = async (...args: readonly string[]): Promise<string> => {
    const { TMUX: _, ...env } = process.env;
    const command = ["-u", "-S", socket, "-f", "/dev/null", ...args];
    return (await execute(TMUX_PROGRAM, command, { env: { ...env, LC_ALL: "C.UTF-8" } })).stdout;
  };
  let count = 0;
  return {
    async open(columns, lines, env) {
      const name = `t${count++}`;
      const variables = { PATH: process.env.PATH ?? "", PS1: "$ ", LC_ALL: "C.UTF-8", TERM: "screen", ...env };
      const shell = ["env", "-i", ...Object.entries(variables).map(([key, value]) => `${key}=${value}`)];
      const size = ["-x", String(columns), "-y", String(lines)];
      await tmux("new-session", "-d", "-s", name, ...size, ...shell, "bash", "--norc", "--noprofile", "-i");
      const terminal = createTerminal(name, tmux);
      await terminal.shows(/^\$/m);
      return terminal;
    },
    async close() {
      if (count > 0) await tmux("kill-server");
      rmSync(socket, { force: true });
    },
  };
}

function createTerminal(name: string, tmux: (...args: readonly string[]) => Promise<string>): TmuxTerminal {
  const capture = async (hasStyles = false): Promise<readonly string[]> => {
    const text = await tmux("capture-pane", "-p", ...(hasStyles ? ["-e"] : []), "-t", name);
    return text.replace(/\n$/, "").split("\n");
  };
  return {
    type: async (text) => void (await tmux("send-keys", "-t", name, "-l", text)),
    press: async (...keys) => void (await tmux("send-keys", "-t", name, ...keys)),
    resize: async (columns, lines) =>
      void (await tmux("resize-window", "-t", name, "-x", String(columns), "-y", String(lines))),
    capture,
    read: async (format) => (await tmux("display-message", "-p", "-t", name, format)).trim(),
    async shows(condition) {
      let lines: readonly string[] = [];
      const isFulfilled = async (): Promise<boolean> => {
        lines = await capture();
        return typeof condition === "function" ? condition(lines) : condition.test(lines.join("\n"));
      };
      await until(isFulfilled, { within: WITHIN_MS, what: `${condition} on the terminal` }).catch((error: Error) => {
        throw new Error(`${error.message}; it shows:\n${lines.join("\n")}`);
      });
      return lines;
    },
  };
}
