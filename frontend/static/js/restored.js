// Whether the browser has restored what was entered before, after Back, Forward or a reload.

/** @param {PageTransitionEvent} event of `pageshow` */
export function isRestored(event) {
  const [visit] = performance.getEntriesByType("navigation");
  return event.persisted || (visit instanceof PerformanceNavigationTiming && visit.type !== "navigate");
}
