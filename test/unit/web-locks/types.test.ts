// The type of webLocks() may stand where that of navigator.locks is expected, as the compiler's own library declares it.

import { resolve } from "node:path";
import ts from "typescript";
import { expect, test } from "vitest";

const PROGRAM = "web-locks-program.ts";
const TEXT = `
import type { WebLock, WebLockInfo, WebLockManager, WebLockOptions, WebLockSnapshot } from "./src/web-locks/types.ts";
declare const manager: WebLockManager;
const standard: LockManager = manager;
export const options: WebLockOptions = {} as LockOptions;
export const lock: Lock = {} as WebLock;
export const info: LockInfo = {} as WebLockInfo;
export const snapshot: LockManagerSnapshot = {} as WebLockSnapshot;
export const result: Promise<number> = manager.request("name", async (granted) => (granted === null ? 0 : 1));
export const callback: LockGrantedCallback<void> = () => undefined;
void standard.request("name", { mode: "shared" }, callback);
void manager.request("name", callback);
// @ts-expect-error it may be null
void manager.request("name", (granted) => granted.name);
// @ts-expect-error no mode of the standard
void manager.request("name", { mode: "foo" }, callback);
`;

test("it is compatible with lib.dom", () => {
  const options: ts.CompilerOptions = {
    lib: ["lib.es2023.d.ts", "lib.dom.d.ts"],
    types: [],
    module: ts.ModuleKind.NodeNext,
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
  };
  const host = ts.createCompilerHost(options);
  const readFile = host.getSourceFile;
  host.getSourceFile = (name, ...rest) =>
    name === resolve(PROGRAM) ? ts.createSourceFile(name, TEXT, ts.ScriptTarget.ES2023) : readFile(name, ...rest);
  const program = ts.createProgram([resolve(PROGRAM)], options, host);
  const faults = ts.getPreEmitDiagnostics(program);
  expect(faults.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"))).toEqual([]);
});
