// Shows an error of the page itself in place of the screen, instead of an empty page.
import { Component, type ReactNode } from "react";

export class ErrorBoundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <div role="alert" className="error">
        <p><strong>This screen failed.</strong> {String(this.state.error)}</p>
        <button type="button" onClick={() => location.reload()}>Reload the page</button>
      </div>
    );
  }
}
