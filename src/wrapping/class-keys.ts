/**
 * The default keys of locked methods, `lock.<class>.<method>`. A minifier renames classes, differently in each build: then two
 * releases that run side by side would not exclude each other, and two classes of one build could share a lock.
 */

/** Shorter names are what minifiers make. */
const MIN_CLASS_NAME_LENGTH = 3;

/** Where the method with this key was decorated. */
const positions = new Map<string, string>();

/**
 * Returns the key. The same source position may register again: its module was loaded anew.
 * @param position where in the source the method is decorated
 * @throws TypeError if the name of the class cannot be part of a key
 */
export function registerClassKey(className: string, method: string, position: string): string {
  const remedy = `pass the option name, such as @locked(locks, { name: "orders.${method}" }), or key`;
  if (className.length < MIN_CLASS_NAME_LENGTH) {
    const problem = className === "" ? "is unknown" : `is ${JSON.stringify(className)}, as if a minifier had chosen it`;
    throw new TypeError(`the default key of ${method}() needs the name of its class, which ${problem}: ${remedy}`);
  }
  const key = `lock.${className}.${method}`;
  const registered = positions.get(key);
  if (registered !== undefined && registered !== position) {
    throw new TypeError(
      `another class ${className} has a locked method ${method}(), with the same default key: ${remedy}`,
    );
  }
  positions.set(key, position);
  return key;
}

/**
 * The source position from which `fn` was called: file, line and column, without the query that a reload adds; and the one
 * behind it, since a program may call `fn` at one place for all of its classes.
 */
export function readCallPosition(fn: (...args: never[]) => unknown): string {
  const holder: { stack?: string } = {};
  Error.captureStackTrace(holder, fn);
  const frames = (holder.stack ?? "").split("\n").slice(1, 3);
  return frames.map((frame) => frame.replace(/^\s*at (?:.*\()?/, "").replace(/\?[^:)]*/, "")).join(" ");
}
