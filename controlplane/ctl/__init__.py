"""grpoctl: the API for terminals and MCP clients. It needs httpx, PyYAML and mcp, but not Django."""
