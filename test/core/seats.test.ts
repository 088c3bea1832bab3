import fc from "fast-check";
import { expect, test } from "vitest";
import { Entry } from "../../src/core/entry.ts";
import { ALL_PERMITS, admittedCount } from "../../src/core/line.ts";
import { Seat, SeatLine } from "../../src/core/seats.ts";
import { claimOf, hold } from "./claims.ts";

let arrivals = 0;

function seatIn(line: SeatLine, permits = ALL_PERMITS, limit = ALL_PERMITS, token = 0, arrival = ++arrivals): Seat {
  const entry = new Entry(claimOf(`c${arrival}`, [hold(line.key, permits, limit)]), null, 0, 0, arrival);
  entry.token = token;
  return new Seat(line, entry, permits, limit, arrival);
}

const idsOf = (line: SeatLine): string[] => [...line.seats].map((seat) => seat.entry.claim.id);

function admitAll(line: SeatLine): void {
  while (line.admitNext() !== null);
}

type Command = { readonly add: { permits: number; limit: number } } | { readonly remove: number };
const command: fc.Arbitrary<Command> = fc.oneof(
  fc
    .constantFrom([ALL_PERMITS, ALL_PERMITS], [1, ALL_PERMITS], [1, 3], [2, 3], [3, 3], [1, 2])
    .map(([permits, limit]) => ({ add: { permits: permits as number, limit: limit as number } })),
  fc.nat().map((remove) => ({ remove })),
);

test("admission step by step gives what the admission rule says of the whole line", () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
      const line = new SeatLine("k");
      for (const next of commands) {
        const seats = [...line.seats];
        if ("add" in next) {
          const welcome = line.welcomes(next.add);
          const seat = seatIn(line, next.add.permits, next.add.limit);
          line.add(seat);
          expect(line.admit(seat)).toBe(welcome);
        } else if (seats.length > 0) {
          line.remove(seats[next.remove % seats.length] as Seat);
          admitAll(line);
        }
        const places = [...line.seats];
        const admitted = places.filter((seat) => seat.admitted).length;
        const asPlaces = places.map(({ permits, limit, entry }) => ({ id: entry.claim.id, permits, limit }));
        expect(admitted).toBe(admittedCount(asPlaces));
        expect(places.findIndex((seat) => !seat.admitted)).toBe(admitted === places.length ? -1 : admitted);
        expect(line.frontier).toBe(admitted === 0 ? null : places[admitted - 1]);
        expect(line.used).toBe(places.slice(0, admitted).reduce((sum, { permits }) => sum + permits, 0));
      }
    }),
  );
});

test("only the first of the waiting is admitted", () => {
  const line = new SeatLine("k");
  const [first, second, third] = [seatIn(line), seatIn(line, 1), seatIn(line, 1)];
  for (const seat of [first, second, third]) line.add(seat as Seat);
  expect(line.admit(second as Seat)).toBe(false);
  expect(line.admit(first as Seat)).toBe(true);
  line.remove(first as Seat);
  expect(line.admit(third as Seat)).toBe(false);
  expect(line.admitNext()).toBe(second);
  expect(line.admit(third as Seat)).toBe(true);
  expect(line.admitNext()).toBeNull();
});

test("the waiting stand by arrival, in whatever order they come back, and behind the admitted", () => {
  const line = new SeatLine("k");
  line.add(seatIn(line, ALL_PERMITS, ALL_PERMITS, 0, 50));
  admitAll(line);
  for (const arrival of [30, 10, 20, 40]) line.add(seatIn(line, 1, ALL_PERMITS, 0, arrival));
  expect(idsOf(line)).toEqual(["c50", "c10", "c20", "c30", "c40"]);
});

test("asserted holds stand before every waiting place, by token", () => {
  const line = new SeatLine("k");
  line.add(seatIn(line, 1, ALL_PERMITS, 0, 1));
  for (const token of [30, 10, 20]) line.addAdmitted(seatIn(line, 1, ALL_PERMITS, token, 100 + token));
  expect(idsOf(line)).toEqual(["c110", "c120", "c130", "c1"]);
  expect(line.frontier?.entry.claim.id).toBe("c130");
  expect(line.used).toBe(3);
});

test("of holds that cannot stand together the lowest token has to go", () => {
  const line = new SeatLine("k");
  line.addAdmitted(seatIn(line, 1, ALL_PERMITS, 10));
  line.addAdmitted(seatIn(line, 1, ALL_PERMITS, 20));
  line.add(seatIn(line));
  expect(line.overfull()).toBeNull();
  line.addAdmitted(seatIn(line, ALL_PERMITS, ALL_PERMITS, 30));
  expect(line.overfull()?.entry.token).toBe(10);
  line.remove(line.seats.first as Seat);
  expect(line.overfull()?.entry.token).toBe(20);
  line.remove(line.seats.first as Seat);
  expect(line.overfull()).toBeNull();
});

test("when the hold with the narrowest limit has gone, those left are measured by their own limits", () => {
  const line = new SeatLine("k");
  line.addAdmitted(seatIn(line, 1, 1, 10));
  line.addAdmitted(seatIn(line, 2, 5, 20));
  line.addAdmitted(seatIn(line, 2, 5, 30));
  line.remove(line.seats.first as Seat);
  expect(line.overfull()).toBeNull();
  line.addAdmitted(seatIn(line, 2, 5, 40));
  expect(line.overfull()?.entry.token).toBe(20);
});
