"""Named items and their versions. A version never changes: runs refer to it."""

from collections.abc import Collection
from typing import Any, ClassVar, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models

from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.platform.deletable import Deletable, unique_name


class Item(Deletable):
    name = models.CharField(max_length=80)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    archived_at = models.DateTimeField(null=True)
    """Time at which the item was archived; since then it isn't offered for new runs."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ("name",)
        constraints = [unique_name("%(class)s_name")]

    def __str__(self) -> str:
        return self.name

    def validate_unique(self, exclude: Collection[str] | None = None) -> None:
        """Check that the name is unique. Django skips its own check, since no form has the constraint's column
        `deleted_at`."""
        super().validate_unique(exclude)
        same_name = type(self)._default_manager.filter(name=self.name).exclude(pk=self.pk)
        if "name" not in (exclude or ()) and same_name.exists():
            raise ValidationError({"name": ValidationError("This name is taken.", code="unique")})


class Version(models.Model):
    number = models.IntegerField()
    note = models.CharField(max_length=200, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    kind: ClassVar[ItemKind]

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.item.name} v{self.number}"

    @property
    def item(self) -> Item:
        return cast(Item, getattr(self, self.kind.item))

    @property
    def specs(self) -> list[Any]:
        """Parts that the contract can read."""
        return self.kind.specs(getattr(self, self.kind.parts))

    @classmethod
    def items(cls) -> type[Item]:
        """Return the model of the version's item."""
        return cast(type[Item], cls._meta.get_field(cls.kind.item).related_model)
