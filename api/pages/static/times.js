// Instants in the visitor's own time zone, but for those of journals.

const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-utc])")) {
    time.title = time.dateTime;
    time.textContent = format.format(new Date(time.dateTime));
  }
}
