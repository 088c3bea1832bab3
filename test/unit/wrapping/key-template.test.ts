import { expect, test } from "vitest";
import { parseKeyTemplate } from "../../../src/wrapping/key-template.ts";
import { readParameters } from "../../../src/wrapping/parameter-names.ts";

const pay = new Function("return (orderId, { id }, amount) => 1")() as (...args: never[]) => unknown;
const passThrough = new Function("return (...args) => 1")() as (...args: never[]) => unknown;

const parse = (template: string, fn = pay): ((args: readonly unknown[]) => string) =>
  parseKeyTemplate(template, { subject: "pay()", parameters: readParameters(fn) });

test("names and positions, with properties, in any place of the template", () => {
  const args = ["o-1", { id: 7, user: { name: "ann" } }, 12n];
  expect(parse("order:#{orderId}")(args)).toBe("order:o-1");
  expect(parse("#{0}/#{1.user.name}#-#{amount}!")(args)).toBe("o-1/ann#-12!");
  expect(parse("#{5}", passThrough)([1, 2, 3, 4, 5, true])).toBe("true");
  expect(parse("nightly")([])).toBe("nightly");
  expect(parse("a # b {c} #c")([])).toBe("a # b {c} #c");
});

test("values cannot imitate separators", () => {
  const key = parse("a:#{0}:#{1}", passThrough);
  expect(key(["1:2", 3])).toBe("a:1%3A2:3");
  expect(key([1, "2:3"])).toBe("a:1:2%3A3");
  expect(key(["%3A/#", "ä "])).toBe("a:%253A%2F%23:ä ");
});

test.each([undefined, null, "", Number.NaN, Number.POSITIVE_INFINITY, {}, [1], () => 1, Symbol("s"), new Date(0)])(
  "a reference that yields %s is an error that names it",
  (value) => {
    expect(() => parse("order:#{orderId}")([value])).toThrow(
      /^#\{orderId\} of pay\(\) must be text that is not empty, a finite number, a bigint, true or false, not /,
    );
  },
);

test("a property of nothing is an error that names the reference", () => {
  expect(() => parse("#{1.user.name}")([1, null])).toThrow("#{1.user.name} of pay() must be");
  expect(() => parse("#{1.user.name}")([1])).toThrow(TypeError);
  expect(() => parse("#{1.user.name}")([1, { user: 3 }])).toThrow(TypeError);
});

test.each([
  ["#{order}", /^#\{order\} names no parameter of pay\(\), whose parameters are orderId, amount: .* such as #\{0\}$/],
  ["#{id}", /names no parameter/],
  ["#{3}", /^#\{3\} names no parameter of pay\(\), which has 3, counted from 0$/],
  ["#{orderId", /a reference that does not end/],
  ["#{a#{orderId}}", /a reference that does not end/],
  ["a#{0}#{1}", /needs ":", "\/" or "#" before #\{1\}: else different values would share a key$/],
  ["#{orderId}-#{amount}", /before #\{amount\}/],
  ["#{}", /is not a reference/],
  ["#{ orderId }", /is not a reference/],
  ["#{orderId.}", /is not a reference/],
  ["#{orderId[0]}", /is not a reference/],
  ["#{process.exit()}", /is not a reference/],
  ["#{orderId.constructor.name}", /must not read constructor/],
  ["#{orderId.__proto__}", /must not read __proto__/],
  ["", /must not be empty/],
  ["a\nb", /control characters/],
])("the template %j is refused before the first call", (template, message) => {
  expect(() => parse(template)).toThrow(message);
  expect(() => parse(template)).toThrow(TypeError);
});

test("parameters without readable names are an error that recommends positions", () => {
  expect(() => parse("#{orderId}", passThrough)).toThrow(
    "whose parameters have no readable names: minifiers and other decorators change names, so refer to its position, such as #{0}",
  );
});
