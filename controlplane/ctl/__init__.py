"""grpoctl: the API from a terminal, and for MCP clients. It needs httpx, PyYAML and mcp, no Django."""
