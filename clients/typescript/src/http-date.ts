/**
 * HTTP dates, in the three forms of RFC 9110 §5.6.7.
 *
 *     Sun, 06 Nov 1994 08:49:37 GMT     Sunday, 06-Nov-94 08:49:37 GMT     Sun Nov  6 08:49:37 1994
 *
 * `Date.parse` accepts far more, and differs between engines. So the older forms are rewritten as the first one, and a
 * date counts only if `toUTCString`, which always prints the first form, gives the same text back. That also rejects
 * 31 February, 24:00:00 and a wrong day of the week.
 */

const longDay = /^(Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day$/;
const rfc850 = /^(\w+), (\d\d)-(\w{3})-(\d\d) (\d\d:\d\d:\d\d) GMT$/;
const asctime = /^(\w{3}) (\w{3}) ([ \d]\d) (\d\d:\d\d:\d\d) (\d{4})$/;

/** True for `Sun` and for `Sunday`. */
export function isWeekday(text: string): boolean {
  return longDay.test(text) || /^(Sun|Mon|Tue|Wed|Thu|Fri|Sat)$/.test(text);
}

/** Unix time in milliseconds, or undefined if the text is not a date that exists, or is before 1970. */
export function parseHttpDate(text: string): number | undefined {
  const fixdate = rewritten(text);
  const time = Date.parse(fixdate);
  return time >= 0 && new Date(time).toUTCString() === fixdate ? time : undefined;
}

function rewritten(text: string): string {
  const [, weekday, day, month, year, time] = rfc850.exec(text) ?? [];
  if (weekday && longDay.test(weekday)) {
    const century = Number(year) < 70 ? 20 : 19;
    return `${weekday.slice(0, 3)}, ${day} ${month} ${century}${year} ${time} GMT`;
  }
  return text.replace(
    asctime,
    (_, shortDay, ownMonth, ownDay, ownTime, ownYear) =>
      `${shortDay}, ${ownDay.replace(" ", "0")} ${ownMonth} ${ownYear} ${ownTime} GMT`,
  );
}
