import { spawn } from "node:child_process";

export type Output = { readonly code: number; readonly text: string };

/** Runs a tool from node_modules/.bin, or any program, and collects what it prints. */
export function runProgram(program: string, ...args: string[]): Promise<Output> {
  return new Promise((resolve) => {
    const path = `node_modules/.bin${process.platform === "win32" ? ";" : ":"}${process.env.PATH ?? ""}`;
    const child = spawn(program, args, {
      env: { ...process.env, PATH: path, NO_COLOR: "1", FORCE_COLOR: "0" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
    });
    child.stderr.on("data", (chunk) => {
      text += chunk;
    });
    child.on("error", (error) => resolve({ code: 1, text: String(error) }));
    child.on("close", (code) => resolve({ code: code ?? 1, text }));
  });
}

/** The tool's output as the one fault, if it failed. */
export async function runTool(program: string, ...args: string[]): Promise<string[]> {
  const { code, text } = await runProgram(program, ...args);
  return code === 0 ? [] : [text.trim() || `${program} ended with code ${code}`];
}

/** True if the program can be started. */
export async function isInstalled(program: string): Promise<boolean> {
  return (await runProgram(program, "--version")).code === 0;
}
