/** HTTP dates, in the three forms of RFC 9110 §5.6.7. `Date.parse` accepts far more, and differs between engines. */

interface DateParts {
  readonly weekday: string;
  readonly day: string;
  readonly month: string;
  readonly year: string;
  /** Hour, minute, second. */
  readonly time: string[];
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec";
const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const fixdate = /^(\w{3}), (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT$/;
const rfc850 = /^(\w{6,9}), (\d\d)-(\w{3})-(\d\d) (\d\d):(\d\d):(\d\d) GMT$/;
const asctime = /^(\w{3}) (\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{4})$/;

/** True for `Sun` and for `Sunday`. */
export function isWeekday(text: string): boolean {
  return days.some((day) => text === day || text === day.slice(0, 3));
}

/** Unix time in milliseconds, or undefined if the text is not a date that exists. */
export function parseHttpDate(text: string): number | undefined {
  const parts = split(text);
  if (!parts) return undefined;
  const month = months.indexOf(parts.month) / 3;
  const [hour, minute, second] = parts.time.map(Number) as [number, number, number];
  const year = fullYear(parts.year);
  if (!Number.isInteger(month) || year < 1970 || hour > 23 || minute > 59 || second > 59) return undefined;

  const time = Date.UTC(year, month, Number(parts.day), hour, minute, second);
  const date = new Date(time);
  const exists = date.getUTCMonth() === month && date.getUTCDate() === Number(parts.day); // unlike 31 February
  return exists && days[date.getUTCDay()]!.startsWith(parts.weekday) ? time : undefined;
}

function split(text: string): DateParts | undefined {
  let match = fixdate.exec(text) ?? rfc850.exec(text);
  if (match) {
    const [, weekday, day, month, year, ...time] = match as unknown as [string, string, string, string, string];
    // The long form has the weekday in full.
    return year.length === 4 || days.includes(weekday) ? { weekday, day, month, year, time } : undefined;
  }
  match = asctime.exec(text);
  if (!match) return undefined;
  const [, weekday, month, day, hour, minute, second, year] = match as unknown as string[];
  return { weekday: weekday!, day: day!, month: month!, year: year!, time: [hour!, minute!, second!] };
}

/** Two digits below 70 are 20xx, else 19xx. */
function fullYear(digits: string): number {
  const year = Number(digits);
  if (digits.length > 2) return year;
  return year < 70 ? 2000 + year : 1900 + year;
}
