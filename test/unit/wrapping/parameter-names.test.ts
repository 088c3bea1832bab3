import { expect, test } from "vitest";
import { readParameters } from "../../../src/wrapping/parameter-names.ts";

/** Compiled from text: a transpiler would change what these tests are about. */
function compile(source: string): (...args: never[]) => unknown {
  return new Function(`return (${source})`)() as (...args: never[]) => unknown;
}

const method = (source: string): ((...args: never[]) => unknown) =>
  (compile(`class { ${source} }`) as unknown as { prototype: Record<string, () => unknown> }).prototype
    .m as () => unknown;

test.each([
  ["(a, b) => 1", ["a", "b"]],
  ["a => 1", ["a"]],
  ["async a => 1", ["a"]],
  ["async (a) => 1", ["a"]],
  ["() => 1", []],
  ["function (a, b) {}", ["a", "b"]],
  ["function f (a , b,) {}", ["a", "b"]],
  ["async function* f(a) {}", ["a"]],
  ["(a /* , x */, // y,\n b) => 1", ["a", "b"]],
  ["(a = f(1, ')'), b = [1, 2], c = { d: 3 }) => 1", ["a", "b", "c"]],
  ["({ a, b }, [c], d) => 1", [null, null, "d"]],
  ["(größe, $x, _y) => 1", ["größe", "$x", "_y"]],
  ["(a = 'it\\'s ,', b) => 1", ["a", "b"]],
  ["(a = (x, y) => x, b) => 1", ["a", "b"]],
])("%s", (source, names) => {
  expect(readParameters(compile(source))).toEqual({ names, mayHaveMore: false });
});

test.each([
  ["m(a, b) {}", ["a", "b"]],
  ["async m(a) { return '(' }", ["a"]],
  ["async *m(a) {}", ["a"]],
  ["['m'](a) {}", ["a"]],
  ["[((x) => 'm')(1)](a) {}", ["a"]],
  ["'m'(a) {}", ["a"]],
])("a method %s", (source, names) => {
  expect(readParameters(method(source))).toEqual({ names, mayHaveMore: false });
});

test.each([
  ["(...rest) => 1", []],
  ["(a, ...rest) => 1", ["a"]],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the source of a function
  ["(a, b = `,${1}`, c) => 1", ["a"]],
  ["(a, b = /[,)]/, c) => 1", ["a"]],
])("%s: there may be more than could be read", (source, names) => {
  expect(readParameters(compile(source))).toEqual({ names, mayHaveMore: true });
});

test("functions of the engine and bound ones show nothing", () => {
  for (const fn of [Math.max, compile("(a) => a").bind(null)]) {
    expect(readParameters(fn as () => unknown)).toEqual({ names: [], mayHaveMore: true });
  }
});

test("positions behind the readable parameters of a lowered async method are accepted", () => {
  // as tsc and esbuild lower `async pay(orderId, amount = 1)` to ES2016
  const sources = [
    "({ pay(orderId_1) { return __awaiter(this, arguments, void 0, function* (orderId, amount = 1) {}); } }).pay",
    "({ pay(_0) { return __async(this, arguments, function* (orderId, amount = 1) {}); } }).pay",
  ];
  for (const source of sources) {
    const parameters = readParameters(new Function(`return ${source}`)());
    expect([parameters.names.length, parameters.mayHaveMore]).toEqual([1, true]);
  }
});
