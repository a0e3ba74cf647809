/**
 * HTTP dates, in the three forms of RFC 9110 §5.6.7.
 *
 *     Sun, 06 Nov 1994 08:49:37 GMT     Sunday, 06-Nov-94 08:49:37 GMT     Sun Nov  6 08:49:37 1994
 *
 * `Date.parse` accepts far more, and differs between engines. So the older forms are rewritten as the first one, and a
 * date counts only if `toUTCString`, which always prints the first form, gives the same text back. That also rejects
 * 31 February, 24:00:00 and a wrong day of the week.
 */

/** A pattern for `Sun,` and `Sunday,`. */
export const weekday = "(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat|(?:Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day),";
// These may be lenient, since the date is compared with the text that was made of it.
const rfc850 = new RegExp(`^(?=${weekday})(...)\\w+, (..)-(...)-(..) (.+) GMT$`);
const asctime = /^(...) (...) ([ \d]\d) (.+) (....)$/;

/** Unix time in milliseconds, or NaN if the text is not a date that exists, or is before 1970. */
export function parseHttpDate(text: string): number {
  const fixdate = text
    .replace(rfc850, (_, name, day, month, year, time) => {
      return `${name}, ${day} ${month} ${year < 70 ? 20 : 19}${year} ${time} GMT`;
    })
    .replace(asctime, (_, name, month, day, time, year) => {
      return `${name}, ${day.replace(" ", 0)} ${month} ${year} ${time} GMT`;
    });
  const time = Date.parse(fixdate);
  return time >= 0 && fixdate.length < 30 && new Date(time).toUTCString() === fixdate ? time : NaN;
}
