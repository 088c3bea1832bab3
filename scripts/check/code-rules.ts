// Rules about the code inside one file: purity, inheritance, sizes, what drivers may not do. Each exception has a reason.

import ts from "typescript";
import type { SourceTree } from "./source-tree.ts";
import { findDeadTargets, formatLocation, isWithin, listImports, walk } from "./source-tree.ts";

const MAX_FILE_LINES = 600;
export const MAX_FUNCTION_LINES = 60;
/** A component of the pages is one thing on the screen. */
const MAX_COMPONENT_LINES = 150;
/** A function inside another one, up to this length, is a part of it. */
const MAX_PART_LINES = 10;

const TIMERS: readonly string[] = ["setTimeout", "setInterval", "setImmediate"];
/** Pure code gets the time and randomness as arguments, so that a test or another language can repeat every step. */
const IMPURE_GLOBALS: readonly string[] = [...TIMERS, "queueMicrotask", "Date", "performance", "crypto", "process"];

type Exception = {
  /** A file, or a folder when it ends with a slash. */
  readonly within: string;
  readonly reason: string;
};

/** Drivers get the time from a Clock, which tests drive, and so need no timers of Node. */
const MAY_USE_TIMERS: readonly Exception[] = [
  { within: "src/drivers/server/autostart.ts", reason: "polls a server that it has just started" },
  { within: "src/drivers/zookeeper/client/", reason: "yields to the event loop once, with setImmediate" },
];

/** Loops that await and have no bound. Bounded ones are free: over a list, counted, or up to a limit. */
const MAY_WAIT_WITHOUT_BOUND: readonly Exception[] = [
  { within: "src/drivers/etcd/list.ts", reason: "reads lists page by page" },
  { within: "src/drivers/nats/", reason: "hears what a connection and its watches tell, until they end" },
  { within: "src/drivers/redis/", reason: "waits until its client is connected again; reads lists page by page" },
  { within: "src/drivers/server/", reason: "waits for a server that starts" },
  {
    within: "src/drivers/sql/clients/connection-pool.ts",
    reason: "waits until a connection is free, or the pool is closed",
  },
  { within: "src/drivers/sql/postgres/listener.ts", reason: "waits until it receives pushes, or is closed" },
  { within: "src/drivers/sql/open.ts", reason: "tries again until the database is reached, at most connectTimeoutMs" },
  { within: "src/drivers/zookeeper/client/", reason: "waits until its session is connected again" },
];

/** Data attached to an object from outside hides who owns it and how long it lives: a field or a Map shows both. */
const MAY_HAVE_WEAK_COLLECTIONS: readonly Exception[] = [
  {
    within: "src/drivers/sql/advisory/own-claims.ts",
    reason: "a late call may come after the end of a claim, which would be kept by its id for ever",
  },
  {
    within: "src/drivers/sql/recheck.ts",
    reason: "a claim of the core may end without a further call",
  },
  {
    within: "src/drivers/sql/clients/connection.ts",
    reason: "who listens to the connections of a pool that belongs to the user, for as long as the pool exists",
  },
  {
    within: "src/drivers/sql/clients/mysql2.ts",
    reason: "a class of statements for each copy of mysql2 that the program has",
  },
  {
    within: "src/drivers/sql/clients/pg.ts",
    reason: "the status of a client that belongs to the user, for as long as the client exists",
  },
  {
    within: "src/drivers/zookeeper/claim-nodes.ts",
    reason: "an ended claim may be released again after forget(): by its id it would be kept for ever",
  },
  { within: "src/drivers/zookeeper/node-watches.ts", reason: "caches a comparison with a queue, which never changes" },
  {
    within: "src/optimistic/versioned-row.ts",
    reason: "the version of a row that the user has and may write into, for as long as the row exists",
  },
];

/** A branch by class is a method that is missing; only what comes from outside has to be recognized. */
const MAY_TEST_CLASSES: readonly Exception[] = [
  { within: "src/client/locks.ts", reason: "recognizes a user's argument" },
];

/** They get the time and randomness as arguments. */
const PURE: readonly string[] = [
  "src/claim/",
  "src/lock-table/",
  "src/util/backoff.ts",
  "src/util/chunk.ts",
  "src/util/deadline-heap.ts",
  "src/util/linked-list.ts",
  "src/util/slot-map.ts",
  "src/client/grant.ts",
  "src/client/lock-spec.ts",
];

/** The rows of all tables in this file that fit no file. */
export function deadCodeRuleRows(sourceTree: SourceTree): string[] {
  const exceptions = [MAY_USE_TIMERS, MAY_WAIT_WITHOUT_BOUND, MAY_HAVE_WEAK_COLLECTIONS, MAY_TEST_CLASSES].flat();
  const targets = [...PURE, ...exceptions.map(({ within }) => within)];
  return findDeadTargets(sourceTree.keys(), targets, "scripts/check/code-rules.ts");
}

export function pureCore(sourceTree: SourceTree): string[] {
  const files = [...sourceTree.values()].filter((file) => PURE.some((target) => isWithin(file.fileName, target)));
  return files.flatMap((file) => {
    const faults = listImports(file)
      .filter((edge) => !edge.relative)
      .map((edge) => `${edge.from}:${edge.line} pure code may not import ${edge.to}`);
    walk(file, (node) => {
      const name = ts.isIdentifier(node) && isGlobalUse(node) ? node.text : "";
      if (IMPURE_GLOBALS.includes(name)) faults.push(`${formatLocation(node)} pure code may not use ${name}`);
      if (ts.isPropertyAccessExpression(node) && node.getText() === "Math.random") {
        faults.push(`${formatLocation(node)} pure code may not use Math.random: take a random number as an argument`);
      }
    });
    return faults;
  });
}

export function inheritance(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    walk(file, (node) => {
      if (!ts.isHeritageClause(node) || node.token !== ts.SyntaxKind.ExtendsKeyword) return;
      if (!ts.isClassLike(node.parent)) return;
      const base = node.types[0]?.expression.getText() ?? "";
      if (!base.endsWith("Error"))
        faults.push(`${formatLocation(node)} extends ${base}: only errors have a base class`);
    });
  }
  return faults;
}

export function fileAndFunctionSizes(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    const lines = file.text.trimEnd().split("\n").length;
    if (lines > MAX_FILE_LINES) faults.push(`${file.fileName}: ${lines} lines, at most ${MAX_FILE_LINES}`);
    walk(file, (node) => {
      if (!isFunction(node)) return;
      const own = countOwnLines(node);
      if (own > MAX_FUNCTION_LINES) {
        faults.push(
          `${formatLocation(node)} function ${functionName(node)}: ${own} lines, at most ${MAX_FUNCTION_LINES}`,
        );
      }
    });
  }
  return faults;
}

export function componentSizes(sourceTree: SourceTree): string[] {
  return [...sourceTree.values()].flatMap(({ fileName, text }) => {
    const lines = text.trimEnd().split("\n").length;
    if (!fileName.endsWith(".tsx") || lines <= MAX_COMPONENT_LINES) return [];
    return [`${fileName}: ${lines} lines, at most ${MAX_COMPONENT_LINES}`];
  });
}

/** A driver answers calls. Time and retries belong to the engine that calls it, so that they exist once. */
export function driversWithoutTimers(sourceTree: SourceTree): string[] {
  return filesInFolder(sourceTree, "src/drivers/").flatMap((file) => {
    const mayUseTimers = isExcepted(file, MAY_USE_TIMERS);
    const mayWait = isExcepted(file, MAY_WAIT_WITHOUT_BOUND);
    const faults = mayUseTimers
      ? []
      : listImports(file)
          .filter((edge) => /^node:timers/.test(edge.to))
          .map((edge) => `${edge.from}:${edge.line} a driver has no timers: take a Clock`);
    walk(file, (node) => {
      if (!mayUseTimers && ts.isIdentifier(node) && TIMERS.includes(node.text) && isGlobalUse(node)) {
        faults.push(`${formatLocation(node)} a driver has no timers (${node.text}): take a Clock`);
      }
      if (!mayWait && ts.isIterationStatement(node, false) && containsAwait(node) && !isBounded(node)) {
        faults.push(`${formatLocation(node)} a driver has no loop without a bound that awaits`);
      }
    });
    return faults;
  });
}

export function weakCollections(sourceTree: SourceTree): string[] {
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    if (isExcepted(file, MAY_HAVE_WEAK_COLLECTIONS)) continue;
    walk(file, (node) => {
      if (!ts.isNewExpression(node)) return;
      const name = node.expression.getText();
      if (name === "WeakMap" || name === "WeakSet") {
        faults.push(`${formatLocation(node)} ${name}: keep the data in a field of the object, or give a reason`);
      }
    });
  }
  return faults;
}

/** `instanceof` with a class of src, except errors, which are matched when they are caught. */
export function classTests(sourceTree: SourceTree): string[] {
  const ownClasses = new Set<string>();
  for (const file of sourceTree.values()) {
    walk(file, (node) => {
      if (!ts.isClassDeclaration(node) || node.name === undefined) return;
      const base = node.heritageClauses?.find(({ token }) => token === ts.SyntaxKind.ExtendsKeyword);
      if (base === undefined) ownClasses.add(node.name.text);
    });
  }
  const faults: string[] = [];
  for (const file of sourceTree.values()) {
    if (isExcepted(file, MAY_TEST_CLASSES)) continue;
    walk(file, (node) => {
      if (!ts.isBinaryExpression(node) || node.operatorToken.kind !== ts.SyntaxKind.InstanceOfKeyword) return;
      const name = node.right.getText();
      if (ownClasses.has(name)) faults.push(`${formatLocation(node)} instanceof ${name}: call a method of it instead`);
    });
  }
  return faults;
}

function isExcepted(file: ts.SourceFile, exceptions: readonly Exception[]): boolean {
  return exceptions.some(({ within }) => isWithin(file.fileName, within));
}

/** A loop over a list, one that counts, or one whose condition compares with a limit. */
function isBounded(loop: ts.Node): boolean {
  if (ts.isForOfStatement(loop)) return loop.awaitModifier === undefined;
  if (ts.isForInStatement(loop)) return true;
  if (ts.isForStatement(loop)) return loop.incrementor !== undefined || comparesWithLimit(loop.condition);
  return (ts.isWhileStatement(loop) || ts.isDoStatement(loop)) && comparesWithLimit(loop.expression);
}

function comparesWithLimit(condition: ts.Expression | undefined): boolean {
  if (condition === undefined || !ts.isBinaryExpression(condition)) return false;
  const { left, operatorToken, right } = condition;
  if (operatorToken.kind === ts.SyntaxKind.AmpersandAmpersandToken) {
    return comparesWithLimit(left) || comparesWithLimit(right);
  }
  return ["<", "<=", ">", ">="].includes(operatorToken.getText());
}

function filesInFolder(sourceTree: SourceTree, folder: string): ts.SourceFile[] {
  return [...sourceTree.values()].filter((file) => file.fileName.startsWith(folder));
}

/** `Date` and `globalThis.Date`, but not `event.Date` or `{ Date: 1 }`. */
function isGlobalUse(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent) && parent.name === node) {
    return parent.expression.getText() === "globalThis";
  }
  const declares =
    ts.isPropertyAssignment(parent) || ts.isPropertySignature(parent) || ts.isPropertyDeclaration(parent);
  return !(declares && parent.name === node);
}

function containsAwait(loop: ts.Node): boolean {
  if (ts.isForOfStatement(loop) && loop.awaitModifier !== undefined) return true;
  const search = (node: ts.Node): boolean =>
    ts.isAwaitExpression(node) || (!isFunction(node) && (ts.forEachChild(node, search) ?? false));
  return ts.forEachChild(loop, search) ?? false;
}

type FunctionNode = ts.FunctionLikeDeclaration | ts.ClassStaticBlockDeclaration;

function isFunction(node: ts.Node): node is FunctionNode {
  if (ts.isClassStaticBlockDeclaration(node)) return true;
  return ts.isFunctionLike(node) && "body" in node && node.body !== undefined;
}

/** Lines from the first to the last, without those of methods and of longer functions inside it, which count on their own. */
function countOwnLines(node: FunctionNode): number {
  let lines = lineSpan(node) + 1;
  const subtract = (child: ts.Node): void => {
    if (isFunction(child) && (isMethod(child) || lineSpan(child) >= MAX_PART_LINES)) lines -= lineSpan(child);
    else ts.forEachChild(child, subtract);
  };
  ts.forEachChild(node, subtract);
  return lines;
}

function isMethod(node: FunctionNode): boolean {
  return ts.isMethodDeclaration(node) || ts.isAccessor(node) || ts.isConstructorDeclaration(node);
}

function lineSpan(node: ts.Node): number {
  const file = node.getSourceFile();
  const lineAt = (position: number): number => file.getLineAndCharacterOfPosition(position).line;
  return lineAt(node.getEnd()) - lineAt(node.getStart(file));
}

function functionName(node: FunctionNode): string {
  if ("name" in node && node.name !== undefined) return node.name.getText();
  return ts.isVariableDeclaration(node.parent) ? node.parent.name.getText() : "(unnamed)";
}
